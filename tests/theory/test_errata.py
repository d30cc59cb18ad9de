"""The errata: rendered mathematics, counterexamples in fractions, and no script from a row."""

import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from theory.claims import CLAIMS
from theory.reports import errata, typeset

ROW = {
    "id": "X1", "label": "lem:f_i", "line": 20, "verdict": "HOLDS", "expected": "HOLDS", "ratio": 0.5,
    "counterexample": None, "statement": r"$\gamma < 1/L$", "assumptions": [], "corrected": "", "correction": None,
    "note": "", "exact_checks": 3, "findings": [], "seconds": 9876.5,
}  # fmt: skip
FALSE = {
    "verdict": "FALSE", "expected": "FALSE", "line": 10, "id": "X2", "corrected": r"$\|x\| \leq 2$ for $K > 1$",
    "counterexample": {
        "instance": {
            "d": 2, "n": 2, "K": 3, "A": [[["1", "-1/2"], ["-1/2", "2"]], [["1", "0"], ["0", "1"]]],
            "p": ["1/3", "2/3"], "gamma2": "1/4", "c_z": [["0", "1"]],
        },
        "left": "[7/2, 0.25]", "right": "-1/2",
    },
}  # fmt: skip


class Elements(HTMLParser):
    """The elements and attributes that a browser would see."""

    def __init__(self):
        super().__init__()
        self.names, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_both_pages_show_printed_and_true_form_and_counterexample(tmp_path):
    paths = errata.write([ROW, ROW | FALSE], tmp_path / "new" / "folder", full=True, seed=7)
    assert [path.name for path in paths] == ["errata.md", "errata.html"]
    markdown, page = (path.read_text() for path in paths)
    assert "| FALSE | 1 |" in markdown
    assert "| HOLDS | 1 |" in markdown
    assert "Budget: full. Seed: 7." in markdown
    assert r"A_{1} = \begin{pmatrix} 1 & -\frac{1}{2} \cr -\frac{1}{2} & 2 \end{pmatrix}" in markdown
    assert r"p = \left(\frac{1}{3},\thickspace \frac{2}{3}\right)" in markdown
    assert r"\gamma_{2} = \frac{1}{4}" in markdown
    assert r"c_{z_1} = \begin{pmatrix} 0 \cr 1 \end{pmatrix}" in markdown
    assert r"$\Vert x\Vert \leq 2$ for $K \gt 1$" in markdown
    assert markdown.index("Line 10: X2 FALSE") < markdown.index("What holds as printed") < markdown.index("| X1 | 20 |")
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>3</mn></mrow></mfrac>" in page
    assert "<mtable>" in page
    assert "$" not in page
    assert r"\frac" not in page
    assert "<script" not in page
    assert "9876" not in markdown + page  # no timings


def test_the_same_rows_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        errata.write([ROW, ROW | FALSE], tmp_path / name)
    for name in ("errata.md", "errata.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_rows_cannot_inject_scripts(tmp_path):
    attack = "<script>alert(1)</script> $\\text{<script>}$ $\\href{javascript:alert(1)}{x}$ $</math><img src=x>$ \"'>"
    fields = {name: attack for name in ("id", "label", "statement", "corrected", "note")}
    row = ROW | FALSE | fields | {"assumptions": [attack], "findings": [attack]}
    rows = [row, ROW | {"note": attack, "id": "y"}, row | {"counterexample": {"found": attack}}]
    rows.append(
        row | {"counterexample": {"instance": {attack: attack, "A": [[[attack]]]}, "left": attack, "right": "1"}}
    )
    page = errata.write(rows, tmp_path)[1].read_text()
    assert "&lt;script&gt;" in page
    seen = Elements()
    seen.feed(page[page.index("<body>") :])
    page_elements = "body html h1 h2 h3 p code table thead tbody tr th td article span dl dt dd b div"
    assert seen.names <= {*typeset.ELEMENTS.split(), *page_elements.split(" ")}
    assert seen.attributes <= {*typeset.ATTRIBUTES.split(), "id", "class", "xmlns"}


def test_all_mathematics_of_the_claims_is_rendered():
    unreadable = []
    for claim in CLAIMS:
        for text in (claim.statement, claim.corrected, claim.note, *claim.assumptions):
            assert text.count("$") % 2 == 0, (claim.id, text)
            for latex in typeset.formulas(text):
                try:
                    ElementTree.fromstring(typeset.mathml(latex))
                except typeset.Unreadable as error:
                    unreadable.append(f"{claim.id}: {error}")
    assert not unreadable, "\n".join(unreadable)


@pytest.mark.parametrize("latex", [r"\nosuchcommand x", "{", r"\frac{1}{2", r"\href{a}{b}\norm{x}"])
def test_unreadable_mathematics_is_refused_and_shown_as_code(latex):
    with pytest.raises(typeset.Unreadable, match="mathematics must"):
        typeset.mathml(latex)
    assert typeset.to_html(f"${latex}$").startswith("<code>")


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\mathbb{E}[x]", "\U0001d53c"),
        (r"\tilde f_i", "<mover>"),
        (r"\begin{cases} a & b \\ c & d \end{cases}", "<mtable>"),
        (r"\mathrm{InnerLoop}(x)", "<mi>InnerLoop</mi>"),
        (r"A \succeq 0", "<mo>⪰</mo>"),
        (r"\arg\min f", "<mo>arg</mo>"),
    ],
)
def test_mathml(latex, expected):
    assert expected in typeset.mathml(latex)


def test_prose():
    text = "for all gamma <= 1/L_i, as eq:surrogate_i has it (see `a_b` and S_{k-1}; gamma^2)"
    assert typeset.to_markdown(text) == (
        r"for all $\gamma$ $\leq$ 1/$L_i$, as eq:surrogate\_i has it (see `a_b` and $S_{k-1}$; $\gamma^2$)"
    )
    shown = typeset.to_html(text)
    assert "<code>a_b</code>" in shown
    assert "eq:surrogate_i has it" in shown
    assert shown.count("<math") == 5


def test_rows_that_are_not_as_recorded_say_so():
    surprise = ROW | {"expected": "FALSE"}
    assert "On record as FALSE." in errata.markdown([surprise], False, 0)
    undecided = ROW | FALSE | {"verdict": "UNDECIDED", "correction": {"outcome": "falls", "ratio": 2.0}}
    page = errata.as_html([undecided], False, 0)
    assert "FALSE; this run found otherwise" in page
    assert "The correction did not stand its trial (falls)." in page


LUR = [sys.executable, "-c", "import sys; from lur.cli import main; sys.exit(main())"]


def _verify(*arguments):
    return subprocess.run([*LUR, "verify", *arguments], capture_output=True, text=True, timeout=600, check=False)


def test_verify_writes_the_errata_after_the_verdicts(tmp_path):
    done = _verify("--claim", "L5", "--seed", "3", "--errata", str(tmp_path / "errata"))
    assert done.returncode == 0, done.stderr
    paths = [str(tmp_path / "errata" / name) for name in ("errata.md", "errata.html")]
    assert done.stdout.splitlines()[-2:] == paths
    markdown = (tmp_path / "errata" / "errata.md").read_text()
    assert "Line 482: L5 FALSE" in markdown
    assert "Seed: 3." in markdown
    assert sorted(path.name for path in (tmp_path / "errata").iterdir()) == ["errata.html", "errata.md"]


@pytest.mark.parametrize("option", ["--errata", "--atlas", "--figures"])
def test_an_impossible_folder_is_refused_before_anything_runs(option, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for folder, message in ((file, "must name a folder, got the file"), (file / "below", "nothing can be created in")):
        done = _verify(option, str(folder))
        assert done.returncode == 2
        assert done.stderr.startswith(f"lur: {option} must name a folder")
        assert message in done.stderr
        assert done.stdout == ""


def test_an_empty_atlas_is_refused_before_anything_runs(tmp_path):
    done = _verify("--claim", "L5", "--atlas", str(tmp_path / "atlas"))
    assert done.returncode == 2
    assert "--atlas must have a claim with an inequality in gamma, got only L5" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["verdicts", "atlas"])
def test_an_interrupted_verify_writes_nothing(when, tmp_path, monkeypatch):
    from lur.cli.verify import verify
    from theory.reports import atlas
    from theory.trials import verify as trial

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "rows", interrupt if when == "verdicts" else lambda *_, **__: iter([ROW | {"id": "L9"}]))
    monkeypatch.setattr(atlas, "charts", interrupt)
    folders = {"atlas": tmp_path / "atlas"} | ({"errata": tmp_path / "errata"} if when == "verdicts" else {})
    assert verify(claim=("L9",), quiet=True, **folders) == 130
    assert not list(tmp_path.iterdir())
