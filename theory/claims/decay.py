"""Section 7: LocalUpdateDecay, whose open questions of semantics are settled by convention."""

from typing import Any

from theory.claims.claim import Claim, Finding, Inspection


class PaperDecay:
    """The decay rule in plain Python, as `lur.decay` documents its ``paper`` semantics."""

    def __init__(self, gamma, eta, delta, alpha, beta, W=1, P=1, C=0):
        self.gamma, self.eta, self.delta, self.alpha, self.beta = gamma, eta, delta, alpha, beta
        self.W, self.P, self.C = W, P, C
        self.losses, self.best, self.bad, self.cooldown, self.decays = [], float("inf"), 0, C, 0

    def see(self, loss):
        """One round's loss."""
        self.losses.append(loss)
        seen = self.losses[-self.W :]
        mean = sum(seen) / len(seen)
        self.bad = self.bad + 1 if mean > self.best - self.delta else 0
        self.best = min(self.best, mean)
        if self.cooldown > 0:
            self.cooldown -= 1
        elif self.bad >= self.P:
            self.gamma, self.eta, self.decays = self.gamma * self.alpha, self.eta * self.beta, self.decays + 1
            self.bad, self.cooldown = 0, self.C


def _paper_runs(xp: Any) -> list[Finding]:
    """lur's LocalUpdateDecay on two problems against Algorithm 3 in plain Python on closed-form rounds."""
    findings = []
    for name, settings in (
        ("two clients, W = P = 1, C = 0", {"window": 1, "patience": 1, "cooldown": 0, "rounds": 60}),
        ("two clients, W = 3, P = 2, C = 4", {"window": 3, "patience": 2, "cooldown": 4, "rounds": 100}),
    ):
        found = xp.decay_run(**settings)
        rule = PaperDecay(0.4, 0.2, 1e-3, 0.1, 0.9, settings["window"], settings["patience"], settings["cooldown"])
        x = 3.0
        for _ in range(settings["rounds"]):
            loss = ((x - 1) ** 2 / 2 + (x - 0.5) ** 2) / 2
            q = ((2 - rule.gamma) * (x - 1) + (2 - 2 * rule.gamma) * 2 * (x - 0.5)) / 2
            x -= rule.eta * q
            rule.see(loss)
        gap = abs(found["x"] - x) + abs(found["server_lr"] - rule.eta)
        what = f"{name}: {found['decays']} decays, x = {found['x']:.12g}; in plain Python {rule.decays}, {x:.12g}"
        findings.append(Finding(found["decays"] == rule.decays and gap < 1e-10, gap, what))
    return findings


def _rounds_to_see(xp: Any) -> list[Finding]:
    cases = ((1000, 10, 100), (1001, 10, 101), (1, 10, 1))
    return [Finding(xp.rounds_to_see(N, M) == C, 0.0, f"ceil({N}/{M}) = {xp.rounds_to_see(N, M)}") for N, M, C in cases]


CLAIMS = (
    Claim(
        id="D7f",
        label="alg:outerloop_decay",
        line=1136,
        statement="LocalUpdateDecay with window W, patience P and cooldown C",
        trial=(Inspection(_paper_runs),),
        expected="DEFINITION",
        definition=True,
        corrected="conventions: min of nothing is +inf; window mean over the losses there are; the counter runs during "
        "cooldown too; cooldown at the start and after each decay; counter reset at a decay",
    ),
    Claim(
        id="D7h",
        label="sec:practical_refinements",
        line=1196,
        statement=r"$P = W = C = \lceil N/M \rceil$",
        trial=(Inspection(_rounds_to_see),),
        expected="DEFINITION",
        definition=True,
    ),
)
