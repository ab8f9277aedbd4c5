// Panels of a job's telemetry: the peers' band, their median, and the machines that stand out of it.
"use strict";
(() => {
  const box = document.getElementById("panels");
  if (!box || typeof uPlot === "undefined") return;
  const charts = new Map();
  let tag = "";

  function colours() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return {
      ink: dark ? "#e8ecf0" : "#14181d", grid: dark ? "#2a323b" : "#e3e7eb", band: dark ? "rgba(138,184,255,.22)" : "rgba(11,79,168,.16)",
      edge: dark ? "#5f86c0" : "#4f7fbf",
      middle: dark ? "#8ab8ff" : "#0b4fa8", lines: dark ? ["#ff7b72", "#ffcb6b", "#d2a8ff", "#7fdca4", "#ff8ae2"] : ["#b3131f", "#8a5300", "#6f2dbd", "#0b6b3a", "#b5179e"],
    };
  }
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 2]];

  function short(value, unit) {
    if (value === null || value === undefined) return "-";
    const size = Math.abs(value);
    const [scale, prefix] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
    return `${Number((value / scale).toPrecision(3))}${prefix || unit ? " " : ""}${prefix}${unit === "ratio" || unit === "1" ? "" : unit}`;
  }

  function options(holder, panel, names) {
    const c = colours();
    const axis = { stroke: c.ink, grid: { stroke: c.grid, width: 1 }, ticks: { stroke: c.grid }, font: "13px system-ui" };
    const say = (_, value) => short(value, panel.unit);
    return {
      width: Math.max(280, holder.clientWidth - 24), height: 210,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "UTC"),
      cursor: { drag: { x: false, y: false } },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1e3).toISOString().slice(11, 19)) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => short(tick, panel.unit)) }],
      series: [
        { label: "UTC", value: (_, seconds) => (seconds ? new Date(seconds * 1e3).toISOString().slice(11, 19) : "-") },
        { label: "peers, highest", stroke: c.edge, width: 1, value: say, points: { show: false } },
        { label: "peers, lowest", stroke: c.edge, width: 1, value: say, points: { show: false } },
        { label: "peers, median", stroke: c.middle, width: 1.5, value: say, points: { show: false } },
        ...names.map((name, index) => ({ label: name, stroke: c.lines[index % 5], dash: dashes[index % 5], width: 2.5, value: say, points: { show: false } })),
      ],
      bands: [{ series: [1, 2], fill: c.band }],
    };
  }

  function draw(live) {
    const wanted = Object.keys(live.metrics);
    const key = (metric) => metric + "\n" + Object.keys(live.metrics[metric].lines).join("\n");
    for (const [known, entry] of charts) {
      if (!wanted.some((metric) => key(metric) === known)) { entry.chart.destroy(); entry.panel.remove(); charts.delete(known); }
    }
    for (const metric of wanted) {
      const panel = live.metrics[metric];
      const names = Object.keys(panel.lines);
      const data = [live.times, panel.high, panel.low, panel.middle, ...names.map((name) => panel.lines[name])];
      const entry = charts.get(key(metric));
      if (entry) { entry.chart.setData(data); continue; }
      const holder = document.createElement("div");
      holder.className = "panel";
      const title = document.createElement("h3");
      title.textContent = metric.replaceAll("_", " ");
      holder.append(title);
      box.append(holder);
      charts.set(key(metric), { panel: holder, chart: new uPlot(options(holder, panel, names), data, holder) });
    }
  }

  async function poll() {
    let heard = false;
    try {
      const answer = await fetch(box.dataset.live, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      heard = answer.ok || answer.status === 304;
      if (answer.redirected) location.reload();
      else if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        const live = await answer.json();
        if (live) draw(live);
      }
    } catch { heard = false; }
    document.dispatchEvent(new CustomEvent("minder:polled", { detail: heard }));
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const entry of charts.values()) { entry.chart.destroy(); entry.panel.remove(); }
    charts.clear();
    tag = "";
    poll();
  });
  poll();
  setInterval(() => document.hidden || poll(), 5000);
})();
