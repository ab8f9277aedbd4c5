// What pages do by themselves: how long ago something was, parts that are polled, and saying so when no answer comes.
"use strict";
(() => {
  const spans = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function ago(seconds) {
    const size = Math.abs(seconds);
    const [length, unit] = spans.find(([length]) => size >= length) || [1, "s"];
    const text = `${Math.floor(size / length)} ${unit}`;
    return seconds >= 0 ? `${text} ago` : `in ${text}`;
  }

  function age() {
    for (const moment of document.querySelectorAll("time[datetime]")) {
      const seconds = (Date.now() - Date.parse(moment.dateTime)) / 1000;
      moment.dataset.ago = ago(seconds);
    }
  }

  // What changed in a polled part is said once, in the page's live region; nothing is said of what stood there from the start.
  const news = document.getElementById("news");
  const currentOf = () => document.querySelector("[data-news]")?.dataset.news || "";
  let known = currentOf();
  function tell() {
    if (!news || currentOf() === known) return;
    known = currentOf();
    news.textContent = known;
  }

  // A link of a polled part that has the focus keeps it.
  let focused = "";
  document.addEventListener("htmx:afterSettle", (event) => {
    tell();
    if (focused && document.activeElement === document.body) {
      [...event.detail.target.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    }
    focused = "";
  });

  // A part that has not changed is not put in again: a reader who tabs through it stays in place.
  const shown = new WeakMap();
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    if (shown.get(target) === xhr.responseText) event.detail.shouldSwap = false;
    else if (event.detail.shouldSwap) {
      shown.set(target, xhr.responseText);
      focused = (target.contains(document.activeElement) && document.activeElement.getAttribute("href")) || "";
    }
  });

  let heard = new Date();
  const stale = document.getElementById("stale");
  function isStale(old) {
    if (!old) heard = new Date();
    if (!stale) return;
    stale.hidden = !old;
    stale.querySelector("span").textContent = heard.toISOString().slice(11, 19) + " UTC";
  }
  document.addEventListener("htmx:afterRequest", (event) => isStale(!event.detail.successful));
  document.addEventListener("minder:polled", (event) => isStale(!event.detail));
  document.addEventListener("htmx:afterSettle", age);

  // A command is copied with one press; without a clipboard it is selected.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
  });
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;

  age();
  setInterval(age, 5000);
})();
