// The closed forms of theory/, in the plane. Symmetric matrices are [xx, xy, yy], vectors [x, y].
// tests/lur/explorer/test_page.py compares every number with theory/, which shares no code with this file.
"use strict";

const Formulas = (() => {
  const UNIT = [1, 0, 1];
  const ZERO = [0, 0, 0];

  const plus = (a, b) => a.map((value, k) => value + b[k]);
  const minus = (a, b) => a.map((value, k) => value - b[k]);
  const scale = (s, a) => a.map((value) => s * value);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const apply = (a, v) => [a[0] * v[0] + a[1] * v[1], a[1] * v[0] + a[2] * v[1]];
  const outer = (v) => [v[0] * v[0], v[0] * v[1], v[1] * v[1]];
  const both = (v, w) => [2 * v[0] * w[0], v[0] * w[1] + v[1] * w[0], 2 * v[1] * w[1]]; // v w^T + w v^T
  const norm2 = (v) => v[0] * v[0] + v[1] * v[1];
  const trace = (a) => a[0] + a[2];
  const mean = (items) => scale(1 / items.length, items.reduce(plus));

  // a b for symmetric a and b that commute
  const product = (a, b) => [a[0] * b[0] + a[1] * b[1], a[0] * b[1] + a[1] * b[2], a[1] * b[1] + a[2] * b[2]];
  // h s h, and h s + s h
  const sandwich = (h, s) => {
    const [p, q] = [apply(h, [s[0], s[1]]), apply(h, [s[1], s[2]])]; // the columns of h s
    return [p[0] * h[0] + q[0] * h[1], p[0] * h[1] + q[0] * h[2], p[1] * h[1] + q[1] * h[2]];
  };
  const anticommutator = (h, s) => [
    2 * (h[0] * s[0] + h[1] * s[1]),
    h[0] * s[1] + h[1] * s[2] + s[0] * h[1] + s[1] * h[2],
    2 * (h[1] * s[1] + h[2] * s[2]),
  ];

  // Eigenvalues, smallest first. The one closer to 0 is computed from the determinant, without cancellation.
  function eigenvalues(a) {
    const middle = (a[0] + a[2]) / 2;
    const radius = Math.hypot((a[0] - a[2]) / 2, a[1]);
    const far = middle >= 0 ? middle + radius : middle - radius;
    const near = far === 0 ? 0 : (a[0] * a[2] - a[1] * a[1]) / far;
    return middle >= 0 ? [near, far] : [far, near];
  }

  function solve(a, v) {
    const det = a[0] * a[2] - a[1] * a[1];
    return [(a[2] * v[0] - a[1] * v[1]) / det, (a[0] * v[1] - a[1] * v[0]) / det];
  }

  // Gaussian elimination with pivoting, for the 3 x 3 systems of second moments.
  function eliminate(matrix, right) {
    const rows = matrix.map((row, k) => [...row, right[k]]);
    const n = rows.length;
    for (let k = 0; k < n; k++) {
      let best = k;
      for (let r = k + 1; r < n; r++) if (Math.abs(rows[r][k]) > Math.abs(rows[best][k])) best = r;
      [rows[k], rows[best]] = [rows[best], rows[k]];
      for (let r = k + 1; r < n; r++) {
        const factor = rows[r][k] / rows[k][k];
        for (let c = k; c <= n; c++) rows[r][c] -= factor * rows[k][c];
      }
    }
    const x = Array(n).fill(0);
    for (let k = n - 1; k >= 0; k--) x[k] = (rows[k][n] - sum(x.map((value, c) => rows[k][c] * value))) / rows[k][k];
    return x;
  }

  // ---- Theta (lur/theta.py) ----

  const THETA = {
    fedavg: ({ K }) => Array(K).fill(1),
    fomaml: ({ K }) => [...Array(K - 1).fill(0), 1],
    maml: ({ K }) => [...Array(2 * K).fill(0), 1],
    geometric: ({ K, rho }) => Array.from({ length: K }, (_, k) => rho ** k),
    own: ({ K, own }) => Array.from({ length: K }, (_, k) => own[k] ?? 0),
  };

  // ---- the problem: 8 clients in the plane with L = 1 and mu = 1/kappa, at every heterogeneity ----

  const CLIENTS = [
    // largest and smallest curvature (0: L and mu themselves), rotation, minimiser
    { steep: 0.0, flat: 0.35, turn: 0.1, at: [0.95, 0.25] },
    { steep: 0.1, flat: 0.8, turn: -0.3, at: [0.8, -0.75] },
    { steep: 0.25, flat: 0.15, turn: 0.35, at: [0.35, 0.9] },
    { steep: 0.4, flat: 0.6, turn: -0.15, at: [0.15, -0.35] },
    { steep: 0.55, flat: 0.0, turn: 0.5, at: [-0.3, 1.05] },
    { steep: 0.7, flat: 0.45, turn: -0.45, at: [-0.55, -0.8] },
    { steep: 0.85, flat: 0.25, turn: 0.2, at: [-0.75, 0.3] },
    { steep: 1.0, flat: 0.1, turn: -0.05, at: [-1.05, -0.2] },
  ];
  const START = [-1.9, 1.6];

  function problem({ kappa, curvatures, minimisers }) {
    const centre = mean(CLIENTS.map((client) => client.at));
    const spread = Math.sqrt(sum(CLIENTS.map((client) => norm2(minus(client.at, centre)))) / CLIENTS.length);
    const A = CLIENTS.map(({ steep, flat, turn }) => {
      const first = kappa ** (-0.7 * curvatures * steep);
      const second = kappa ** (-1 + 0.7 * curvatures * flat);
      const angle = 0.4 * curvatures * Math.PI * turn;
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      return [
        first * cos * cos + second * sin * sin,
        (first - second) * cos * sin,
        first * sin * sin + second * cos * cos,
      ];
    });
    return { A, c: CLIENTS.map((client) => scale(minimisers / spread, minus(client.at, centre))) };
  }

  // mu, L, sigma_A, sigma_c (theory/problems.py)
  function constants({ A, c }) {
    const [spectra, middle, centre] = [A.map(eigenvalues), mean(A), mean(c)];
    const spread = A.map((a) => Math.max(...eigenvalues(minus(a, middle)).map(Math.abs)));
    return {
      mu: Math.min(...spectra.map((pair) => pair[0])),
      L: Math.max(...spectra.map((pair) => pair[1])),
      sigma_A: Math.sqrt(sum(spread.map((value) => value * value)) / A.length),
      sigma_c: Math.sqrt(sum(c.map((ci) => norm2(minus(ci, centre)))) / c.length),
    };
  }

  // ---- the surrogate (theory/surrogate.py) ----

  // Q A = sum_k theta_k (I - gamma A)^(k-1) A, by Horner's rule
  function clientHessian(a, gamma, theta) {
    const step = minus(UNIT, scale(gamma, a));
    let total = ZERO;
    for (let k = theta.length - 1; k >= 0; k--) total = plus(scale(theta[k], UNIT), product(step, total));
    return product(total, a);
  }

  const distortion = (lambda, gamma, theta) => theta.reduceRight((total, t) => t + (1 - gamma * lambda) * total, 0);

  // x* = E[H_i]^-1 E[H_i c_i]
  const minimiser = (hessians, c) => solve(mean(hessians), mean(hessians.map((h, i) => apply(h, c[i]))));

  // sum_k theta_k (1 - v^(k-1)) / (1 - v) without the division, which would cancel for v near 1
  function slope(v, theta, one, times) {
    let [total, power] = [scale(0, one), scale(0, one)];
    for (const t of theta) {
      total = plus(total, scale(t, power));
      power = plus(one, times(v, power));
    }
    return total;
  }

  // x*(gamma, Theta) - x* (theory/distance.py)
  function shift({ A, c }, gamma, theta, hessians) {
    const x = minimiser(A, c);
    const pulls = A.map((a, i) => {
      const gap = scale(gamma, product(product(a, slope(minus(UNIT, scale(gamma, a)), theta, UNIT, product)), a));
      return apply(gap, minus(x, c[i]));
    });
    return solve(mean(hessians), mean(pulls));
  }

  const scalarSlope = (u, v, theta) => {
    let [total, power, difference] = [0, 1, 0];
    for (const t of theta) {
      total += t * difference;
      difference = power + v * difference;
      power *= u;
    }
    return total;
  };

  // ---- the paper's bounds; null if they do not apply ----

  const upTo = (gamma, limit) => gamma * limit <= 1 + 1e-12;

  // cor:cond_fedavg, cor:cond_maml, lem:QA_structure (theory/spectrum.py)
  function conditionBound({ mu, L }, gamma, theta, family) {
    const [atL, atMu] = [distortion(L, gamma, theta), distortion(mu, gamma, theta)];
    if (family === "fedavg") return upTo(gamma, L) ? (L * atL) / (mu * atMu) : null;
    const single = family === "fomaml" || family === "maml";
    if (single && upTo(gamma, theta.length * L)) {
      return (((1 - gamma * L) / (1 - gamma * mu)) ** (theta.length - 1) * L) / mu;
    }
    return gamma * L < 1 && atL > 0 ? (atMu * L) / (atL * mu) : null;
  }

  // Theorem 4 for Theta_{1:K}, Theorem 3 for the others (theory/distance.py)
  function distanceBound({ mu, L, sigma_A, sigma_c }, gamma, theta, family) {
    const gap = gamma * L * scalarSlope(1, 1 - gamma * L, theta); // s(0) - s(L)
    const factor = L * sigma_c * (1 + sigma_A / mu) * gap;
    if (family === "fedavg") return upTo(gamma, L) ? factor / (mu * distortion(mu, gamma, theta)) : null;
    const atL = distortion(L, gamma, theta);
    return gamma * L < 1 && atL > 0 ? factor / (mu * atL) : null;
  }

  // Theorem 3 with chi_mu for chi: `theory.sharper_distance_bound`
  function sharperDistanceBound({ mu, L, sigma_A, sigma_c }, gamma, theta) {
    const atL = distortion(L, gamma, theta);
    if (!(gamma * L < 1 && atL > 0)) return null;
    const gap = gamma * (L - mu) * scalarSlope(1 - gamma * mu, 1 - gamma * L, theta); // s(mu) - s(L)
    return (((L * sigma_c) / mu) * (1 + sigma_A / mu) * gap) / atL / 2;
  }

  // ---- the exact error (theory/moments.py) ----

  // sum_k W_k^2 times the noise: the covariance of an update due to gradient noise
  function messageNoise(a, gamma, theta, noise) {
    let [later, total] = [ZERO, ZERO];
    for (let k = theta.length - 1; k >= 0; k--) {
      const pull = scale(gamma, product(a, later));
      const W = minus(scale(theta[k], UNIT), pull);
      later = minus(plus(scale(theta[k], UNIT), later), pull);
      total = plus(total, product(W, W));
    }
    return scale(noise, total);
  }

  const between = (n, M, sampling) => (sampling === "iid" ? 1 / M : (n - M) / (M * Math.max(n - 1, 1)));

  // The mean and covariance of the updates of a round, around a point.
  function round({ A, c }, hessians, about, { gamma, eta, M, sampling, noise }, theta) {
    const H = mean(hessians);
    const h_i = hessians.map((hessian, i) => apply(hessian, minus(about, c[i])));
    const h = mean(h_i);
    const w = between(A.length, M, sampling);
    const noises = scale(1 / M, mean(A.map((a) => messageNoise(a, gamma, theta, noise))));
    const square = (hessian, offset, m, S) =>
      plus(plus(sandwich(hessian, S), both(apply(hessian, m), offset)), outer(offset));
    return (m, S) => {
      const each = mean(hessians.map((hessian, i) => square(hessian, h_i[i], m, S)));
      const second = plus(plus(scale(1 - w, square(H, h, m, S)), scale(w, each)), noises);
      const drift = plus(anticommutator(H, S), both(h, m));
      return [
        minus(m, scale(eta, plus(apply(H, m), h))),
        plus(minus(S, scale(eta, drift)), scale(eta * eta, second)),
      ];
    };
  }

  // E||x_t - x*||^2 and E[x_t] for t = 1, ..., T + 1
  function run(world, hessians, target, setting, theta) {
    const step = round(world, hessians, target, setting, theta);
    let m = minus(START, target);
    let S = outer(m);
    const [errors, path] = [[trace(S)], [START]];
    for (let t = 0; t < setting.T; t++) {
      [m, S] = step(m, S);
      errors.push(trace(S));
      path.push(plus(m, target));
    }
    return { errors, path };
  }

  // The trace of lim Cov(x_t), or null if second moments grow. The map is positive, so it is a contraction iff
  // S - map(S) = I has a positive definite solution.
  function stationaryVariance(world, hessians, about, setting, theta) {
    const step = round(world, hessians, about, setting, theta);
    const next = (S) => step([0, 0], S)[1];
    const source = next(ZERO);
    const columns = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((S) => minus(S, minus(next(S), source)));
    const matrix = [0, 1, 2].map((row) => columns.map((column) => column[row]));
    const witness = eliminate(matrix, UNIT);
    if (!(eigenvalues(witness)[0] > 0 && witness.every(Number.isFinite))) return null;
    return trace(eliminate(matrix, source));
  }

  // Theorem 6 (repaired) and Theorem 4 as 2a + 2b^2, for t = 1, ..., T + 1; null if they do not apply
  function errorBound(world, found, hessians, surrogateMinimiser, setting, theta) {
    const { gamma, eta, M, sampling, noise, family, T } = setting;
    if (family !== "fedavg" || !upTo(gamma, found.L)) return null;
    const [low, high] = [found.mu, found.L].map((lambda) => lambda * distortion(lambda, gamma, theta));
    if (!(eta * 2 * high <= 1 + 1e-12)) return null;
    const h_i = hessians.map((hessian, i) => norm2(apply(hessian, minus(surrogateMinimiser, world.c[i]))));
    const V = world.A.map((a) => trace(messageNoise(a, gamma, theta, noise)));
    const n = world.A.length;
    const atMinimiser = between(n, M, sampling) * (sum(h_i) / n) + sum(V) / n / M;
    const start = norm2(minus(START, surrogateMinimiser));
    const bias = distanceBound(found, gamma, theta, family);
    return Array.from(
      { length: T + 1 },
      (_, t) => 2 * ((1 - eta * low) ** t * start + (2 * eta * atMinimiser) / low) + 2 * bias * bias,
    );
  }

  // ---- everything at one setting ----

  // The values that depend on gamma but not on eta, for the curves over gamma.
  function atGamma(world, found, gamma, theta, family) {
    const hessians = world.A.map((a) => clientHessian(a, gamma, theta));
    const [least, largest] = eigenvalues(mean(hessians));
    const convex = least > 0;
    return {
      hessians,
      convex,
      condition: convex ? largest / least : null,
      conditionBound: conditionBound(found, gamma, theta, family),
      shift: convex ? shift(world, gamma, theta, hessians) : null,
      distance: convex ? Math.sqrt(norm2(shift(world, gamma, theta, hessians))) : null,
      distanceBound: distanceBound(found, gamma, theta, family),
      sharperBound: sharperDistanceBound(found, gamma, theta),
    };
  }

  function explore(setting) {
    const { gamma, family, T } = setting;
    const theta = THETA[family](setting);
    const world = problem(setting);
    const found = constants(world);
    const target = minimiser(world.A, world.c);
    const here = atGamma(world, found, gamma, theta, family);
    const surrogate = here.convex ? plus(target, here.shift) : null;
    const { errors, path } = run(world, here.hessians, target, setting, theta);
    const variance = here.convex ? stationaryVariance(world, here.hessians, surrogate, setting, theta) : null;
    const bounds = here.convex ? errorBound(world, found, here.hessians, surrogate, setting, theta) : null;
    const [least, largest] = eigenvalues(mean(world.A));
    return {
      theta,
      world,
      hessians: here.hessians,
      path,
      errors,
      bounds,
      numbers: {
        ...found,
        condition: largest / least,
        surrogateCondition: here.condition,
        conditionBound: here.conditionBound,
        x: target[0],
        y: target[1],
        surrogateX: surrogate && surrogate[0],
        surrogateY: surrogate && surrogate[1],
        distance: here.distance,
        distanceBound: here.distanceBound,
        sharperBound: here.sharperBound,
        error: errors[T],
        errorBound: bounds && bounds[T],
        longRun: variance === null ? null : variance + norm2(here.shift),
        bias: here.distance === null ? null : here.distance ** 2,
      },
    };
  }

  return { explore, atGamma, constants, problem, eigenvalues, apply, minus, plus, scale, mean, norm2, START, THETA };
})();
