// Plots as SVG, drawn at their displayed width, so that text keeps its size.
"use strict";

const Draw = (() => {
  const LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 42;

  function formatted(value, digits = 4) {
    if (value === null || !Number.isFinite(value)) return "–";
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) {
      const [mantissa, exponent] = value.toExponential(Math.min(digits, 3) - 1).split("e");
      return `${mantissa} · 10${superscript(Number(exponent))}`;
    }
    return String(Number(value.toPrecision(digits)));
  }

  const superscript = (n) => [...String(n)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");

  function ticks([low, high], count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
    const first = Math.ceil(low / step - 1e-9);
    const found = [];
    for (let k = first; k * step <= high + 1e-9 * step; k++) found.push({ at: k * step, text: formatted(k * step) });
    return found;
  }

  function powers([low, high]) {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const every = Math.max(1, Math.ceil((last - first) / 5));
    const found = [];
    for (let k = first; k <= last; k += every) {
      found.push({ at: 10 ** k, text: Math.abs(k) <= 3 ? formatted(10 ** k) : `10${superscript(k)}` });
    }
    if (found.length > 1) return found;
    const between = [1, 2, 3, 5].flatMap((m) => [m * 10 ** (first - 1), m * 10 ** first]);
    return between.filter((at) => at >= low && at <= high).map((at) => ({ at, text: formatted(at, 2) }));
  }

  // A frame with axes. Returns the scales, and the SVG of axes and curves.
  function axes(width, height, x, y) {
    const place = (axis, from, to) => {
      const of = axis.log ? Math.log10 : (value) => value;
      const [low, high] = axis.domain.map(of);
      return (value) => from + ((to - from) * (of(value) - low)) / (high - low);
    };
    const [right, bottom] = [width - RIGHT, height - BOTTOM];
    const at = { x: place(x, LEFT, right), y: place(y, bottom, TOP) };
    const parts = [];
    for (const { at: value, text } of ticks(x.domain, Math.max(3, Math.round(width / 90)))) {
      const px = at.x(value).toFixed(1);
      parts.push(`<path class="grid" d="M${px} ${TOP}V${bottom}"/>`);
      parts.push(`<text x="${px}" y="${bottom + 16}" text-anchor="middle">${text}</text>`);
    }
    for (const { at: value, text } of y.log ? powers(y.domain) : ticks(y.domain, 5)) {
      const py = at.y(value).toFixed(1);
      parts.push(`<path class="grid" d="M${LEFT} ${py}H${right}"/>`);
      parts.push(`<text x="${LEFT - 6}" y="${Number(py) + 4}" text-anchor="end">${text}</text>`);
    }
    parts.push(`<path class="frame" d="M${LEFT} ${TOP}V${bottom}H${right}"/>`);
    parts.push(`<text x="${(LEFT + right) / 2}" y="${height - 8}" text-anchor="middle">${x.label}</text>`);
    parts.push(`<text transform="translate(14 ${(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">${y.label}</text>`);
    return { at, parts, box: { x: LEFT, y: TOP, width: right - LEFT, height: bottom - TOP } };
  }

  // A polyline with gaps at missing values; values far outside the frame are clipped.
  function line(points, at, box, kind) {
    let [d, pen] = ["", "M"];
    for (const [x, y] of points) {
      const py = y === null ? NaN : at.y(y);
      if (!Number.isFinite(py)) {
        pen = "M";
        continue;
      }
      const clipped = Math.max(box.y - 2000, Math.min(box.y + box.height + 2000, py));
      d += `${pen}${at.x(x).toFixed(1)} ${clipped.toFixed(1)}`;
      pen = "L";
    }
    return `<path class="curve ${kind}" d="${d}"/>`;
  }

  function mark([x, y], at, kind) {
    if (y === null || !Number.isFinite(at.y(y))) return "";
    const [px, py] = [at.x(x).toFixed(1), at.y(y).toFixed(1)];
    if (kind === "surrogate") return `<path class="mark ${kind}" d="M${px} ${py}m0 -7l7 7l-7 7l-7 -7z"/>`;
    return `<circle class="mark ${kind}" cx="${px}" cy="${py}" r="${kind === "true" ? 6 : 3}"/>`;
  }

  const SWATCHES = {
    mark: (kind) => mark([9, 7], { x: (v) => v, y: (v) => v }, kind),
    curve: (kind) => `<path class="curve ${kind}" d="M0 7H18"/>`,
  };

  // Fills a <figure> below its caption: legend, SVG, note. `content(at, box, width)` draws inside the frame.
  function figure(element, { height, x, y, legend, content, description, note }) {
    const width = Math.max(240, Math.round(element.clientWidth));
    const tall = typeof height === "function" ? height(width) : height;
    if (!element.querySelector("svg.plot")) {
      element.insertAdjacentHTML(
        "beforeend",
        `<ul class="legend"></ul><svg class="plot" role="img"></svg><p class="note"></p>`,
      );
    }
    const { at, parts, box } = axes(width, tall, typeof x === "function" ? x(width, tall) : x, y);
    const clip = `clip-${element.id}`;
    const svg = element.querySelector("svg.plot");
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.setAttribute("aria-label", description);
    svg.innerHTML =
      `<clipPath id="${clip}"><rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}"/></clipPath>` +
      parts.join("") +
      `<g clip-path="url(#${clip})">${content(at, box).join("")}</g>`;
    element.querySelector(".legend").innerHTML = legend
      .map(([shape, kind, text]) => `<li><svg width="18" height="14" aria-hidden="true">${SWATCHES[shape](kind)}</svg>${text}</li>`)
      .join("");
    element.querySelector(".note").textContent = note ?? "";
  }

  // The domain of a logarithmic axis that includes all positive values, in whole decades or a part of one.
  function decades(values, most = Infinity) {
    const kept = values.filter((value) => value !== null && value > 0 && Number.isFinite(value));
    const high = Math.min(Math.max(...kept, 1e-300), most);
    const low = Math.max(Math.min(...kept, high), high * 1e-8);
    return [low / 1.3, high * 1.3];
  }

  return { figure, line, mark, formatted, decades, margins: { x: LEFT + RIGHT, y: TOP + BOTTOM } };
})();
