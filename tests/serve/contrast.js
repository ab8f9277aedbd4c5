// Contrast of what a page shows, after WCAG 2.2 (1.4.3, 1.4.11; relative luminance as defined there), out of computed styles.
// Returns [{what, kind: "text" | "graphic", ratio, colour, paper}], one for each pair of colours.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  }
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  function luminance(colour) {
    const [r, g, b] = colour.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function ratio(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }
  function paper(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((below, layer) => over(layer, below), matchMedia("(prefers-color-scheme: dark)").matches ? [17, 21, 26, 1] : [255, 255, 255, 1]);
  }
  const seen = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && element.getClientRects().length > 0;
  const name = (element) => element.tagName.toLowerCase() + [...element.classList].map((word) => "." + word).join("");
  const found = new Map();
  function note(element, kind, colour, below) {
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const [r, g, b, a] = rgba(colour);
    const shown = over([r, g, b, a * opacity], below);
    const key = [kind, name(element), shown.map(Math.round), below.map(Math.round)].join(" ");
    if (!found.has(key)) found.set(key, { what: `${name(element)}: ${element.textContent.trim().slice(0, 30)}`, kind, ratio: ratio(shown, below), colour: shown.map(Math.round).join(), paper: below.map(Math.round).join() });
  }
  for (const element of document.querySelectorAll("body *")) {
    if (!seen(element)) continue;
    const style = getComputedStyle(element), isSvg = element.namespaceURI.endsWith("svg");
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (own || element.matches("input:not([type=radio], [type=checkbox]), textarea, select")) note(element, "text", isSvg ? style.fill : style.color, paper(element));
    for (const edge of ["::before", "::after"]) {
      const made = getComputedStyle(element, edge);
      if (!["none", "normal"].includes(made.content)) note(element, "text", made.color, paper(element));
    }
    if (element.matches("input:not([type=radio], [type=checkbox]), textarea, select, .grid a, .key, .badge")) note(element, "graphic", style.borderTopColor, paper(element.parentElement));
    if (element.matches(".card")) note(element, "graphic", style.borderLeftColor, paper(element.parentElement));
    if (element.matches(".x-line, .x-middle, .x-mark, .x-band")) note(element, "graphic", style.stroke, paper(element.closest("figure, main")));
    if (element.matches(".x-dot")) note(element, "graphic", style.fill, paper(element.closest("figure, main")));
  }
  return [...found.values()];
}
