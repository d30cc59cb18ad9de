// The page: reads the settings from the controls and shows figures, numbers and a sentence. The address has the settings.
"use strict";

(() => {
  const { explore, atGamma, constants, eigenvalues, apply, minus, plus, scale, mean, norm2, START } = Formulas;
  const { formatted } = Draw;
  const form = document.getElementById("controls");
  const weightSliders = document.getElementById("own");
  const MAX_WEIGHTS = Number(form.elements.K.max);
  const MAX_GAMMA = Number(form.elements.gamma.max);
  const NAMES = { fedavg: "FedAvg", fomaml: "FOMAML", maml: "MAML", geometric: "This method", own: "This method" };

  for (let k = 1; k <= MAX_WEIGHTS; k++) {
    weightSliders.insertAdjacentHTML(
      "beforeend",
      `<div><label for="theta${k}">θ<sub>${k}</sub></label><output for="theta${k}"></output>` +
        `<input type="range" id="theta${k}" name="theta${k}" min="0" max="2" step="0.1" value="1"></div>`,
    );
  }
  const fields = [...form.elements].filter((field) => field.name);

  // ---- settings ----

  function currentSettings() {
    const values = {};
    for (const field of fields) {
      const number = Number(field.value);
      values[field.name] = field.type !== "range" ? field.value : "log" in field.dataset ? 10 ** number : number;
    }
    values.own = Array.from({ length: MAX_WEIGHTS }, (_, k) => values[`theta${k + 1}`]);
    return values;
  }

  function restoreSettings(text) {
    const requested = new URLSearchParams(text);
    for (const field of fields) {
      const first = field.type === "range" ? field.defaultValue : field.querySelector("[selected]").value;
      const value = requested.get(field.name) ?? first;
      const known =
        field.type === "range"
          ? value !== "" && Number.isFinite(Number(value))
          : [...field.options].some((option) => option.value === value);
      field.value = known ? value : first;
    }
  }

  function settingsHash() {
    const changed = fields.filter((field) => {
      const first = field.type === "range" ? field.defaultValue : field.querySelector("[selected]").value;
      return field.value !== first;
    });
    return changed.map((field) => `${field.name}=${encodeURIComponent(field.value)}`).join("&");
  }

  // ---- figures ----

  function ellipse(at, centre, hessian, level, kind) {
    const [least, largest] = eigenvalues(hessian);
    if (!(least > 0)) return "";
    const unit = at.x(1) - at.x(0);
    const angle = (-Math.atan2(2 * hessian[1], hessian[0] - hessian[2]) * 90) / Math.PI; // of the axis of largest curvature
    const [rx, ry] = [largest, least].map((value) => Math.min(unit * Math.sqrt((2 * level) / value), 1e4).toFixed(1));
    const [px, py] = [at.x(centre[0]).toFixed(1), at.y(centre[1]).toFixed(1)];
    return `<ellipse class="curve ${kind}" transform="translate(${px} ${py}) rotate(${angle.toFixed(2)})" rx="${rx}" ry="${ry}"/>`;
  }

  function drawPlane(found, total) {
    const { numbers: n, world, hessians, path } = found;
    const surrogate = mean(hessians);
    const target = [n.x, n.y];
    const end = n.surrogateX === null ? null : [n.surrogateX, n.surrogateY];
    const [across, up] = [2.4, 2];
    Draw.figure(document.getElementById("plane"), {
      height: (width) => Math.round((width - Draw.margins.x) * (up / across)) + Draw.margins.y,
      x: { label: "first coordinate of x", domain: [-across, across] },
      y: { label: "second coordinate of x", domain: [-up, up] },
      legend: [
        ["curve", "client", "clients fᵢ"], ["curve", "true", "f"], ["curve", "surrogate", "surrogate f̃"],
        ["mark", "true", "x*"], ["mark", "surrogate", "x*(γ, Θ)"], ["curve", "path", "E[xₜ]"],
      ],
      description:
        `True minimiser at ${formatted(n.x)}, ${formatted(n.y)}; ` +
        (end ? `surrogate minimiser at ${formatted(end[0])}, ${formatted(end[1])}.` : "the surrogate has no minimiser."),
      content: (at, box) => [
        ...world.A.map((a, i) => ellipse(at, world.c[i], a, 0.01, "client")),
        ...world.c.map((c) => Draw.mark(c, at, "client")),
        ...[0.01, 0.04, 0.09, 0.16].map((level) => ellipse(at, target, mean(world.A), level, "true")),
        ...(end && total > 0
          ? [0.01, 0.04, 0.09, 0.16].map((level) => ellipse(at, end, scale(1 / total, surrogate), level, "surrogate"))
          : []),
        Draw.line(path.filter(([x, y]) => Math.hypot(x, y) < 1e3), at, box, "path"),
        Draw.mark(START, at, "path"),
        Draw.mark(target, at, "true"),
        end ? Draw.mark(end, at, "surrogate") : "",
      ],
      note: "Level sets at the same heights for f and for f̃ / Σθ; the model starts at the small dot.",
    });
  }

  function drawLosses(found, total) {
    const { numbers: n, world, hessians } = found;
    const target = [n.x, n.y];
    const gap = n.surrogateX === null ? [0, 0] : minus([n.surrogateX, n.surrogateY], target);
    const length = Math.sqrt(norm2(gap));
    const direction = length > 1e-12 ? scale(1 / length, gap) : [1, 0];
    const along = Array.from({ length: 81 }, (_, k) => -2 + k / 20);
    const loss = (matrices, x) =>
      matrices.map((a, i) => {
        const d = minus(x, world.c[i]);
        const g = apply(a, d);
        return (d[0] * g[0] + d[1] * g[1]) / 2;
      });
    const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const points = along.map((s) => plus(target, scale(s, direction)));
    const each = points.map((x) => loss(world.A, x));
    const f = each.map(average);
    const tilde = points.map((x) => (total > 0 ? average(loss(hessians, x)) / total : null));
    const high = Math.max(...f) * 1.05 || 1;
    const low = Math.max(Math.min(0, ...tilde), -high);
    const on = (values) => along.map((s, k) => [s, values[k]]);
    Draw.figure(document.getElementById("losses"), {
      height: (width) => Math.round((width - Draw.margins.x) * (2 / 2.4)) + Draw.margins.y,
      x: { label: "distance from x* along the line", domain: [-2, 2] },
      y: { label: "loss", domain: [low, high] },
      legend: [
        ["curve", "client", "clients fᵢ"], ["curve", "true", "f"], ["curve", "surrogate", "surrogate f̃ / Σθ"],
        ["mark", "true", "x*"], ["mark", "surrogate", "x*(γ, Θ)"],
      ],
      description: `Losses along a line. The minimum of f is at 0, that of the surrogate at ${formatted(n.distance)}.`,
      content: (at, box) => [
        ...world.A.map((_, i) => Draw.line(on(each.map((values) => values[i])), at, box, "client")),
        Draw.line(on(f), at, box, "true"),
        Draw.line(on(tilde), at, box, "surrogate"),
        Draw.mark([0, average(loss(world.A, target))], at, "true"),
        n.distance === null || !(total > 0)
          ? ""
          : Draw.mark([n.distance, average(loss(hessians, plus(target, gap))) / total], at, "surrogate"),
      ],
      note: n.distance === null ? "The surrogate is not convex here, so it has no minimiser." : "",
    });
  }

  function overGamma(found, { gamma, family }) {
    const steps = 120;
    const range = constants(found.world);
    const grid = Array.from({ length: steps + 1 }, (_, k) => (k * MAX_GAMMA) / steps);
    const rows = grid.map((g) => atGamma(found.world, range, g, found.theta, family));
    const pairs = (name) => grid.map((g, k) => [g, rows[k][name]]);
    const now = (at, box) => [
      `<path class="limit" d="M${at.x(1).toFixed(1)} ${box.y}V${box.y + box.height}"/>`,
      `<text x="${(at.x(1) + 4).toFixed(1)}" y="${box.y + 12}">1/L</text>`,
      `<path class="now" d="M${at.x(gamma).toFixed(1)} ${box.y}V${box.y + box.height}"/>`,
    ];
    const x = { label: "client learning rate γ, in 1/L", domain: [0, MAX_GAMMA] };
    return { rows, pairs, now, x };
  }

  function drawConditions(found, curves, { gamma }) {
    const { numbers: n } = found;
    const flat = [[0, n.condition], [MAX_GAMMA, n.condition]];
    const top = 100 * Math.max(n.condition, n.L / n.mu);
    Draw.figure(document.getElementById("conditions"), {
      height: 270,
      x: curves.x,
      y: {
        label: "condition number", log: true,
        domain: Draw.decades([1, n.condition, ...curves.rows.flatMap((row) => [row.condition, row.conditionBound])], top),
      },
      legend: [
        ["curve", "true", "f"], ["curve", "surrogate", "surrogate"], ["curve", "bound", "the paper's bound"],
        ["curve", "now", "γ now"],
      ],
      description: `Condition number ${formatted(n.surrogateCondition)} of the surrogate at this gamma, ${formatted(n.condition)} of f.`,
      content: (at, box) => [
        ...curves.now(at, box),
        Draw.line(flat, at, box, "true"),
        Draw.line(curves.pairs("conditionBound"), at, box, "bound"),
        Draw.line(curves.pairs("condition"), at, box, "surrogate"),
        Draw.mark([gamma, n.surrogateCondition], at, "surrogate"),
      ],
      note: n.conditionBound === null ? "The paper has no bound at this γ." : "",
    });
  }

  function drawDistances(found, curves, { gamma, family }) {
    const { numbers: n } = found;
    const values = curves.rows.slice(1).flatMap((row) => [row.distance, row.distanceBound, row.sharperBound]);
    const zero = !(n.sigma_c > 0);
    Draw.figure(document.getElementById("distances"), {
      height: 270,
      x: curves.x,
      y: { label: "distance ‖x*(γ, Θ) − x*‖", log: true, domain: zero ? [0.01, 1] : Draw.decades(values, 1e3) },
      legend: [
        ["curve", "surrogate", "exact"],
        ["curve", "bound", family === "fedavg" ? "the paper's Theorem 4" : "the paper's Theorem 3"],
        ["curve", "sharper", "Theorem 3, sharper"], ["curve", "now", "γ now"],
      ],
      description: `Distance ${formatted(n.distance)} at this gamma, bound ${formatted(n.distanceBound)}.`,
      content: (at, box) => [
        ...curves.now(at, box),
        Draw.line(curves.pairs("distanceBound"), at, box, "bound"),
        Draw.line(curves.pairs("sharperBound"), at, box, "sharper"),
        Draw.line(curves.pairs("distance").map(([g, d]) => [g, d > 1e-14 ? d : null]), at, box, "surrogate"),
        Draw.mark([gamma, n.distance > 1e-14 ? n.distance : null], at, "surrogate"),
      ],
      note: !(n.distance > 1e-14) && n.distance !== null
        ? "The minimisers agree; a logarithmic axis cannot show distance 0."
        : n.distanceBound === null ? "The paper's bounds need γ below 1/L." : "",
    });
  }

  function drawErrors(found, { T, family, gamma }) {
    const { numbers: n, errors, bounds } = found;
    const step = Math.max(1, Math.floor(T / 300));
    const pairs = (values) => values.map((value, t) => [t, value]).filter(([t]) => t % step === 0 || t === T);
    const flat = (value) => [[0, value], [T, value]];
    const bias = n.bias !== null && n.bias > 1e-14 ? n.bias : null;
    const levels = [...errors, ...(bounds ?? []), n.longRun, bias];
    Draw.figure(document.getElementById("errors"), {
      height: 280,
      x: { label: "rounds done", domain: [0, T] },
      y: { label: "E‖xₜ − x*‖²", log: true, domain: Draw.decades(levels, 100 * (bounds ? bounds[0] : errors[0])) },
      legend: [
        ["curve", "path", "exact"], ["curve", "bound", "bound, Theorems 6 and 4"],
        ["curve", "level", "exact, in the long run"], ["curve", "surrogate", "of which bias: ‖x*(γ, Θ) − x*‖²"],
      ],
      description: `Expected squared error ${formatted(n.error)} after ${T} rounds; in the long run ${formatted(n.longRun)}.`,
      content: (at, box) => [
        bounds ? Draw.line(pairs(bounds), at, box, "bound") : "",
        bias === null ? "" : Draw.line(flat(bias), at, box, "surrogate"),
        n.longRun === null ? "" : Draw.line(flat(n.longRun), at, box, "level"),
        Draw.line(pairs(errors), at, box, "path"),
      ],
      note: bounds ? "" : family !== "fedavg"
        ? "The paper bounds the error of FedAvg only."
        : gamma > 1 ? "The paper's bound needs γ up to 1/L." : "The paper's bound needs a smaller η: up to 1/(2 φ(L)).",
    });
  }

  // ---- sentence, numbers and code ----

  function sentence(found, { gamma, K, family, T }) {
    const { numbers: n } = found;
    const name = NAMES[family];
    if (!found.theta.some((weight) => weight > 0)) return "All weights are 0: the clients send nothing.";
    if (n.distance === null) {
      return (
        `At γ = ${formatted(gamma)}/L and K = ${K} the surrogate of ${name.replace("This", "this")} is not convex: ` +
        "it has no minimiser, and no server learning rate makes the method converge."
      );
    }
    const faster = n.surrogateCondition < n.condition ? "better" : "worse";
    const conditioned = Math.abs(n.surrogateCondition - n.condition) < 1e-9 * n.condition
      ? `descends a loss as well conditioned as f (${formatted(n.condition, 3)})`
      : `descends a ${faster} conditioned loss than f, ${formatted(n.surrogateCondition, 3)} against ${formatted(n.condition, 3)}`;
    const wrong = n.distance < 1e-12
      ? "and it converges to the minimiser of f"
      : `${faster === "better" ? "but" : "and"} its minimiser is ${formatted(n.distance, 3)} away from f's`;
    const allowed = n.distance >= 1e-12 && n.distanceBound !== null
      ? ` (the paper's bound allows ${formatted(n.distanceBound, 3)})`
      : "";
    const first = `With γ = ${formatted(gamma)}/L and K = ${K} ${name.replace("This", "this")} ${conditioned}, ${wrong}${allowed}.`;
    if (n.longRun === null) return `${first} With this η the error grows without limit: decrease η or increase M.`;
    const share = n.longRun > 0 ? Math.round((100 * n.bias) / n.longRun) : 0;
    const cause = share > 0 ? `, ${share}% of it bias that no server learning rate can remove` : "";
    return (
      `${first} After ${T} rounds the expected squared error is ${formatted(n.error, 3)}; ` +
      `in the long run ${formatted(n.longRun, 3)}${cause}.`
    );
  }

  const GROUPS = {
    "Condition number": [
      ["condition", "of f"],
      ["surrogateCondition", "of the surrogate"],
      ["conditionBound", "the paper's bound"],
    ],
    "Minimisers": [
      ["x", "x*, first coordinate"],
      ["y", "second"],
      ["surrogateX", "x*(γ, Θ), first coordinate"],
      ["surrogateY", "second"],
    ],
    "Distance between them": [
      ["distance", "exact"],
      ["distanceBound", "the paper's bound"],
      ["sharperBound", "Theorem 3, sharper"],
    ],
    "Expected squared error": [
      ["error", "after T rounds"],
      ["errorBound", "the paper's bound"],
      ["longRun", "in the long run"],
      ["bias", "of which bias"],
    ],
    "The clients": [
      ["mu", "least curvature μ"],
      ["L", "largest curvature L"],
      ["sigma_A", "spread of curvatures σ_A"],
      ["sigma_c", "spread of minimisers σ_c"],
    ],
  };

  function table(numbers) {
    const cell = (value) =>
      value === null || !Number.isFinite(value)
        ? `<data value="">–</data>`
        : `<data value="${value}">${formatted(value, 5)}</data>`;
    const row = ([name, text]) => `<div data-name="${name}"><dt>${text}</dt><dd>${cell(numbers[name])}</dd></div>`;
    return Object.entries(GROUPS)
      .map(([title, rows]) => `<section><h3>${title}</h3><dl>${rows.map(row).join("")}</dl></section>`)
      .join("");
  }

  function python(found, { gamma, eta, M, sampling, noise, T }) {
    const list = (values) => `[${values.join(", ")}]`;
    const A = found.world.A.map(([xx, xy, yy]) => list([list([xx, xy]), list([xy, yy])]));
    return [
      "import numpy as np, theory",
      "",
      `A = [\n    ${A.join(",\n    ")},\n]`,
      `c = [\n    ${found.world.c.map(list).join(",\n    ")},\n]`,
      "problem = theory.Problem(np.array(A), np.array(c))",
      `gamma, eta, theta = ${gamma}, ${eta}, ${list(found.theta)}`,
      `run = dict(M=${M}, sampling="${sampling}", noise=${noise} * np.eye(2))`,
      "",
      "hessian = theory.surrogate_hessian(problem, gamma, theta)",
      "print(np.linalg.cond(hessian), theory.surrogate_minimizer(problem, gamma, theta))",
      "print(theory.minimizer_distance(problem, gamma, theta))",
      `print(theory.mean_square_error(problem, ${list(START)}, gamma, theta, eta, ${T}, **run)[-1])`,
      "print(theory.stationary_mean_square_error(problem, gamma, theta, eta, **run))",
    ].join("\n");
  }

  // ---- rendering ----

  function labels(values) {
    for (const field of fields) {
      if (field.type !== "range") continue;
      const text = formatted(values[field.name], 3);
      form.querySelector(`output[for="${field.id}"]`).textContent = text;
      field.setAttribute("aria-valuetext", field.name === "gamma" ? `${text} over L` : text);
    }
    for (const part of form.querySelectorAll("[data-family]")) part.hidden = part.dataset.family !== values.family;
    [...weightSliders.children].forEach((child, k) => (child.hidden = k >= values.K));
  }

  let announcement = 0;
  function render() {
    const values = currentSettings();
    labels(values);
    const found = explore(values);
    const total = found.theta.reduce((sum, value) => sum + value, 0);
    const curves = overGamma(found, values);
    drawPlane(found, total);
    drawLosses(found, total);
    drawConditions(found, curves, values);
    drawDistances(found, curves, values);
    drawErrors(found, values);
    document.getElementById("numbers").innerHTML = table(found.numbers);
    document.getElementById("python").textContent = python(found, values);
    const text = sentence(found, values);
    const status = document.getElementById("sentence");
    clearTimeout(announcement); // screen readers announce it once the slider rests
    status.setAttribute("aria-busy", "true");
    status.textContent = text;
    announcement = setTimeout(() => status.removeAttribute("aria-busy"), 400);
  }

  function changed() {
    render();
    history.replaceState(null, "", `#${settingsHash()}`);
  }

  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("click", (event) => {
    if (!("preset" in event.target.dataset)) return;
    restoreSettings(event.target.dataset.preset);
    changed();
  });
  window.addEventListener("hashchange", () => {
    restoreSettings(location.hash.slice(1));
    render();
  });
  new ResizeObserver(render).observe(document.getElementById("results"));
  restoreSettings(location.hash.slice(1));
  render();
})();
