r"""Prose with LaTeX in it, as Markdown that GitHub renders and as HTML that needs no network and no script.

The input is prose with mathematics between dollar signs and code between backticks, as the claims are written. In HTML
the mathematics becomes MathML when the page is made. Only characters and known MathML elements reach a page.
"""

import html
import re
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, tostring

from theory._extras import exact_extra

with exact_extra("theory.reports"):
    from latex2mathml.converter import Converter

ELEMENTS = """
    math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr mtd mstyle
    mpadded mphantom
"""
ATTRIBUTES = """
    display stretchy fence form separator movablelimits accent columnalign rowspacing columnspacing width linethickness
    displaystyle scriptlevel mathvariant minsize maxsize lspace rspace
"""
GREEK = "alpha|beta|gamma|delta|epsilon|eta|theta|kappa|lambda|mu|sigma|tau|phi|chi|Theta"
_SAFE_VALUE = re.compile(r"[\w.%+ -]*")
_SPECIAL = re.compile(r"\$([^$]+)\$|`([^`]+)`")  # mathematics, code
_NAME = re.compile(
    r"(?<![\w:])(?:(" + GREEK + r")|([A-Za-z]))(_\w|_\{[^{}$]*\})?(\^\w)?(?![\w:])|<=|>="
)  # gamma^2, mu_i, A_i, S_{k-1}, but not the i of lem:f_i_loss

# Markdown interprets backslash + punctuation, * and | before it looks at formulas; it leaves these words alone.
_MARKDOWN_MATHEMATICS = (
    (r"\\\\", r"\\cr "), (r"\\\{", r"\\lbrace "), (r"\\\}", r"\\rbrace "), (r"\\\|", r"\\Vert "), (r"\|", r"\\vert "),
    (r"\\,", r"\\thinspace "), (r"\\;", r"\\thickspace "), (r"\\!", ""), (r"\*", r"\\ast "),
    (r"<", r"\\lt "), (r">", r"\\gt "), (r"(?<=[^\w\s])_", "_ "),
)  # fmt: skip


class Unreadable(ValueError):
    """LaTeX that cannot be converted to MathML: an unknown command, braces that do not match."""


def mathml(latex: str, display: str = "inline") -> str:
    """Converts LaTeX to MathML, inline or as a block.

    Raises:
      Unreadable: if latex2mathml does not know a command, or braces do not match.
    """
    bare = re.sub(r"\\[{}]", "", latex)
    if bare.count("{") != bare.count("}"):
        raise Unreadable(f"mathematics must have braces that match, got {latex!r}")
    try:
        known = re.sub(r"\\arg(?![A-Za-z])", r"\\operatorname{arg}", latex)
        root = Converter(display=display).convert_to_element(known)
    except Exception as error:  # the package's errors have no common base class
        raise Unreadable(f"mathematics must be LaTeX that latex2mathml reads, got {latex!r}") from error
    _clean(root, latex)
    root.set("xmlns", "http://www.w3.org/1998/Math/MathML")
    return tostring(root, encoding="unicode")


def _clean(element: Element, latex: str) -> None:
    """Keeps known elements and harmless attributes, and corrects the package's mistakes with letters and operators."""
    if element.tag not in ELEMENTS.split():
        raise Unreadable(f"mathematics must use plain commands, got <{element.tag}> from {latex!r}")
    for name, value in list(element.attrib.items()):
        if name not in ATTRIBUTES.split() or not _SAFE_VALUE.fullmatch(value):
            del element.attrib[name]
    element.text = text = html.unescape(element.text or "")
    if "\\" in text:
        raise Unreadable(f"mathematics must use commands that latex2mathml knows, got {text!r} in {latex!r}")
    if element.tag == "mi" and len(text) == 1 and unicodedata.category(text)[0] in "SP" and text not in "∞∂∇":
        element.tag = "mo"
    if _upright(element):
        element[:] = [_letters("".join(child.text or "" for child in element))]
    for child in element:
        child.tail = None
        _clean(child, latex)


def _upright(element: Element) -> bool:
    return len(element) > 1 and all(c.tag == "mi" and c.get("mathvariant") == "normal" for c in element)


def _letters(word: str) -> Element:
    element = Element("mi")
    element.text = word
    return element


class _Writers(NamedTuple):
    """How prose, mathematics and code are written in a format."""

    prose: Callable[[str], str]
    mathematics: Callable[[str], str]
    code: Callable[[str], str]


def _format(source: str, write: _Writers) -> str:
    def name(match: re.Match[str]) -> str:
        greek, letter, index, power = match.groups(default="")
        if match[0] in ("<=", ">="):
            return write.mathematics(r"\leq" if match[0] == "<=" else r"\geq")
        if greek or index or power:
            return write.mathematics(f"\\{greek}{index}{power}" if greek else f"{letter}{index}{power}")
        return write.prose(letter)

    def prose(part: str) -> str:
        return _replace(_NAME, part, write.prose, name)

    def special(match: re.Match[str]) -> str:
        return write.mathematics(match[1]) if match[1] else write.code(match[2])

    return _replace(_SPECIAL, source, prose, special)


def _replace(
    pattern: re.Pattern[str],
    source: str,
    write_rest: Callable[[str], str],
    write_match: Callable[[re.Match[str]], str],
) -> str:
    """Applies `write_match` to the matches of the pattern and `write_rest` to what is between them."""
    written, end = [], 0
    for match in pattern.finditer(source):
        written += [write_rest(source[end : match.start()]), write_match(match)]
        end = match.end()
    return "".join([*written, write_rest(source[end:])])


def formulas(source: str) -> list[str]:
    """Returns the LaTeX between the dollar signs."""
    return [match[1] for match in _SPECIAL.finditer(source) if match[1]]


def to_html(source: str) -> str:
    """Returns the source as HTML; mathematics that cannot be converted is shown as code."""

    def code(part: str) -> str:
        return f"<code>{html.escape(part)}</code>"

    def mathematics(latex: str) -> str:
        try:
            return mathml(latex)
        except Unreadable:
            return code(latex)

    return _format(source, _Writers(html.escape, mathematics, code))


def to_markdown(source: str) -> str:
    """Returns the source as one line of Markdown, which also fits into a table."""
    return _format(source, _Writers(escape_markdown, lambda latex: f"${markdown_mathematics(latex)}$", "`{}`".format))


def escape_markdown(prose: str) -> str:
    """Returns prose in which no character has a meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|#$])", r"\\\1", prose).replace("\n", " ")


def markdown_mathematics(latex: str) -> str:
    """Returns LaTeX that Markdown leaves unchanged."""
    for pattern, word in _MARKDOWN_MATHEMATICS:
        latex = re.sub(pattern, word, latex)
    return re.sub(" +", " ", latex).strip()


def symbol(name: str) -> str:
    """Returns the LaTeX of a field: gamma2 is gamma with index 2, c_z is c with index z, eps is the paper's epsilon."""
    base, _, index = name.partition("_")
    match = re.fullmatch(r"([A-Za-z]+?)(\d+)", base)
    if match and not index:
        base, index = match[1], match[2]
    base = {"eps": "epsilon", "lam": "lambda"}.get(base, base)
    latex = f"\\{base}" if base in GREEK.split("|") else base if len(base) == 1 else rf"\mathrm{{{base}}}"
    return f"{latex}_{{{index}}}" if index else latex


def number(value: Any) -> str:
    """Returns a fraction such as -1/2, a decimal or 1e-9 as LaTeX."""
    digits = str(value)
    if digits in ("inf", "-inf"):
        return digits.replace("inf", r"\infty")
    if match := re.fullmatch(r"(-?)(\d+)/(\d+)", digits):
        return rf"{match[1]}\frac{{{match[2]}}}{{{match[3]}}}"
    if match := re.fullmatch(r"(-?\d+(?:\.\d+)?)e([+-]?)0*(\d+)", digits):
        return rf"{match[1]} \times 10^{{{match[2].replace('+', '')}{match[3]}}}"
    if re.fullmatch(r"-?\d+(\.\d+)?", digits):
        return digits
    return r"\text{" + re.sub(r"[^\w .+-]", " ", digits) + "}"


STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #00735a; --bad: #b23c00; --warn: #8a5a00;
  --link: #0059b3; --grey: #666 }
@media (prefers-color-scheme: dark) { :root { --good: #35c9a1; --bad: #ff9a5c; --warn: #f0b940; --link: #7cc0ff }
  :root { --grey: #aaa } }
* { box-sizing: border-box }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 1rem }
body { overflow-wrap: break-word }
a { color: var(--link) }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.2rem; margin-top: 2.2rem }
h3 { font-size: 1.02rem; margin: 0 0 .5rem }
article { border-top: 1px solid var(--line); padding: 1rem 0 }
dl { margin: 0; display: grid; grid-template-columns: 8rem 1fr; gap: .45rem 1rem }
dt { color: var(--grey) } dd { margin: 0; min-width: 0; overflow-x: auto; overflow-y: hidden }
math { font-size: 1.06em; font-family: "STIX Two Math", "Cambria Math", "Latin Modern Math", math }
.formulas math { math-style: normal }
.formulas { line-height: 2.1; word-spacing: .25em }
table { border-collapse: collapse; font-size: .93rem; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
td.number, th { white-space: nowrap }
code { background: var(--soft); padding: .05em .3em; border-radius: 3px }
.holds td:nth-child(3) { width: 8.5rem } .holds .remark { color: var(--grey); margin-top: .15rem }
.long { width: 99%; max-width: 0 } .long div { overflow-x: auto; overflow-y: hidden }
.label { color: var(--grey); font-weight: normal }
.verdict { font-weight: 650; letter-spacing: .02em } .HOLDS, .DEFINITION { color: var(--good) }
.FALSE, .UNDECIDED { color: var(--bad) } .TYPO, .NEEDS { color: var(--warn) }
img { width: 100%; height: auto; background: white; border-radius: 4px }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: .05rem } dd { margin-bottom: .55rem }
  .holds thead { display: none } .holds tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0 }
  .holds td { display: inline-block; border: 0; padding: 0 .7rem 0 0 }
  .holds td:nth-child(3) { width: auto } .holds td.long { display: block; width: auto; max-width: none } }
""".strip()


def page(title: str, body: str) -> str:
    """Returns a complete HTML page: light and dark, for any width, without scripts."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f"img-src 'self' file: data:\">\n"
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
