"""A reader's own statement on trial: theory.trial, theory.space, and `lur verify --file`."""

from fractions import Fraction

import numpy as np
import pytest

import theory
from theory.claims import claims_of_file, claims_of_paper
from theory.reports.sizes import describe_sizes
from theory.reports.unicode import from_latex, from_prose

pytestmark = pytest.mark.promote

LINE = [{"d": 1, "n": 2, "K": 2}]
SMALL = 0.02  # of the quick budget


def trial(left, right, relation, space, **options):
    return theory.trial(left, right, relation, space, **{"budget": SMALL, **options})


def test_five_lines_refute_a_false_statement():
    """The mean of the minimisers is not the minimiser of the mean."""
    clients = theory.space("A c p", sizes=[{"d": 1, "n": 2}])
    result = trial(
        lambda xp, I: xp.solve(xp.mean(I.p, I.A), xp.mean(I.p, xp.stack([I.A[i] @ I.c[i] for i in range(I.n)]))),
        lambda xp, I: xp.mean(I.p, I.c),
        "==",
        clients,
    )
    assert result.verdict == "FALSE"
    found = result.counterexample["instance"]
    A, c, p = ([Fraction(v) for v in np.ravel(np.array(found[name], dtype=object))] for name in ("A", "c", "p"))
    left = sum(w * a * b for w, a, b in zip(p, A, c, strict=True)) / sum(w * a for w, a in zip(p, A, strict=True))
    assert left == Fraction(result.counterexample["left"])
    assert left != sum(w * b for w, b in zip(p, c, strict=True)) == Fraction(result.counterexample["right"])
    shown = result._repr_html_()
    assert "<math" in shown
    assert "FALSE" in shown
    assert "fails at d = 1, n = 2" in str(result)


def test_a_true_statement_holds_and_draws_itself():
    clients = theory.space("A c p gamma x", sizes=LINE)
    result = trial(
        lambda xp, I: xp.norm(xp.distortion(I.A[0], I.gamma, (1,) * I.K) @ I.x),
        lambda xp, I: I.K * xp.norm(I.x),
        "<=",
        clients,
    )
    assert result.verdict == "HOLDS"
    assert result.counterexample is None
    assert 0.9 < result.ratio <= 1
    assert [{k: v for k, v in size.items() if k != "kappa"} for size in result.sizes] == LINE
    assert result.exact_checks >= result.moving_checks > 0
    assert "<svg" in result._repr_html_()


def test_the_same_seed_gives_the_same_result():
    clients = theory.space("A gamma", sizes=LINE)
    results = [trial(lambda xp, I: I.gamma * I.A[0, 0, 0], 1, "<=", clients, seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0].worst != results[2].worst


def test_typed_fields():
    space = theory.space(
        "A x",
        sizes=[{"d": 2, "n": 1}],
        S=theory.symmetric(),
        P=theory.positive_definite("n"),
        w=theory.simplex("n"),
        v=theory.vector("d"),
        s=theory.positive(),
        u=theory.between(-1, 1),
        k=theory.integer(2, 4),
        eta=theory.rate(lambda xp, I: 2 / xp.maximum(*xp.eigvalsh(I.A[0]))),
        quadratic=lambda xp, I: I.x @ I.S @ I.x,
    )
    true = trial(
        lambda xp, I: xp.stack([-1, -xp.eigvalsh(I.P[0])[0], xp.total(I.w), -I.s, -I.quadratic, I.k,
                                I.eta * xp.eigvalsh(I.A[0])[-1]]),
        lambda xp, I: xp.stack([I.u, 0, 1, 0, xp.norm(I.S @ I.x) * xp.norm(I.x), 4, 2]),
        "<=",
        space,
        budget=0.01,
    )  # fmt: skip
    assert true.verdict == "HOLDS"
    low = trial(lambda xp, I: xp.stack([3, 0]), lambda xp, I: xp.stack([I.k, I.s]), "<=", space, budget=0.01)
    assert low.verdict == "FALSE"
    assert low.counterexample["instance"]["k"] == "2"


def test_an_irrational_quantity_is_decided_with_balls():
    space = theory.space("x", sizes=[{"d": 2}])
    assert trial(lambda xp, I: xp.norm(I.x) ** 2, lambda xp, I: 1.0 * (I.x @ I.x), "==", space).verdict == "HOLDS"
    assert trial(lambda xp, I: xp.norm(I.x), lambda xp, I: 0.99 * xp.norm(I.x), "<=", space).verdict == "FALSE"


def test_undecided_shows_the_instance():
    space = theory.space("x", sizes=[{"d": 1}])
    result = trial(lambda xp, I: xp.log(-1 - I.x @ I.x), 1, "<=", space)
    assert result.verdict == "UNDECIDED"
    assert "x" in result.worst
    assert result.why
    assert result.why in str(result)
    assert "UNDECIDED" in result._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("A q", LINE), "fields must be names among .* got q"),
        (("A", []), "sizes must be a non-empty sequence"),
        (("A", [{"d": 0, "n": 1}]), "sizes must be a non-empty sequence of dicts of integers >= 1"),
        (("A theta", [{"d": 1, "n": 1}]), "sizes must give K for the field theta"),
    ],
)
def test_wrong_spaces_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        theory.space(*arguments)


def test_wrong_arguments_are_refused():
    space = theory.space("A x", sizes=LINE)
    with pytest.raises(ValueError, match="relation must be '<=' or '==', got '<'"):
        trial(0, 1, "<", space)
    with pytest.raises(ValueError, match="budget must be 'quick', 'full', a number or a Budget, got 'slow'"):
        trial(0, 1, "<=", space, budget="slow")
    with pytest.raises(ValueError, match="left must be a function of \\(xp, I\\) or a number, got 'x'"):
        trial("x", 1, "<=", space)
    with pytest.raises(ValueError, match="extras must have names of their own, got A"):
        theory.space("A", sizes=LINE, A=theory.vector("d"))
    with pytest.raises(ValueError, match="grow must name sizes that are listed, got M"):
        theory.space("A", sizes=LINE, grow="M")
    with pytest.raises(ValueError, match="low must be < high, got 2 and 1"):
        theory.between(2, 1)
    with pytest.raises(AttributeError, match="no attribute 'statements'"):
        theory.statements  # noqa: B018


def test_a_side_that_leaves_xp_is_refused():
    import jax.numpy as jnp

    with pytest.raises(TypeError, match="must be computed with xp"):
        trial(lambda xp, I: jnp.linalg.norm(I.x), lambda xp, I: 2 * xp.norm(I.x), "<=", theory.space("x", sizes=LINE))


FILE = """
import theory

space = theory.space("A c p gamma", sizes=[{"d": 1, "n": 2, "K": 2}])
CLAIMS = {"below one": (lambda xp, I: I.gamma * I.A[0, 0, 0], lambda xp, I: 1, "<=", space)}
"""


def test_claims_of_a_file_and_of_a_paper(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    (claim,) = claims_of_file(path)
    assert (claim.id, claim.label, claim.expected) == ("below one", "mine.py", "HOLDS")
    assert len(claims_of_paper("outsized_importance")) == 93
    with pytest.raises(ValueError, match="paper must be one of outsized_importance, got 'x'"):
        claims_of_paper("x")
    with pytest.raises(ValueError, match="which is no file"):
        claims_of_file(tmp_path / "none.py")
    path.write_text("CLAIMS = 3")
    with pytest.raises(ValueError, match="must define CLAIMS"):
        claims_of_file(path)


def test_verify_tries_the_claims_of_a_file(tmp_path, capsys):
    from lur.cli.verify import verify

    path = tmp_path / "mine.py"
    path.write_text(FILE + 'CLAIMS["below a half"] = (CLAIMS["below one"][0], lambda xp, I: 0.5, "<=", space)\n')
    assert verify(file=path, jobs=1, budget=SMALL) == 1
    out = capsys.readouterr().out
    assert "below a half" in out
    assert "fails at:" in out
    assert verify(file=path, claim=("below one",), jobs=1, budget=SMALL) == 0
    with pytest.raises(ValueError, match="--file and --paper must not be given together"):
        verify(file=path, paper="outsized_importance")


def test_sizes_in_words():
    sizes = [{"d": 1, "K": 2, "kappa": 1e3}, {"d": 3, "K": 400, "kappa": 1e12}]
    assert describe_sizes(sizes) == "d 1-3, K 2-400, kappa up to 1e12"
    assert describe_sizes([]) == ""


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        (r"\gamma < 1/L", "γ < 1/L"),
        (r"\|x^*(\gamma, \Theta) - x^*\| \le \frac{L\sigma_c}{\mu}", "‖x*(γ, Θ) − x*‖ ≤ Lσ_c/μ"),
        (r"\mathbb{E}[g_{k+1}]", "𝔼[gₖ₊₁]"),
        (r"\frac12 \tilde f_i", "½ f̃ᵢ"),
        (r"\frac{1}{2\gamma}", "1/(2γ)"),
        (r"\sqrt{a+b}", "√(a+b)"),
    ],
)
def test_mathematics_in_unicode(latex, shown):
    assert from_latex(latex) == shown


def test_no_latex_is_left_in_the_claims():
    for claim in claims_of_paper("outsized_importance"):
        for text in (claim.statement, claim.corrected, claim.note):
            assert not set("\\$") & set(from_prose(text)), claim.id
