"""Prose with LaTeX in it as plain Unicode text, for a terminal: γ < 1/L, ‖x*(γ, Θ) − x*‖ ≤ ½ σ_c."""

import re
import unicodedata

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "Delta": "Δ", "epsilon": "ε", "eps": "ε", "eta": "η",
    "theta": "θ", "Theta": "Θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "chi": "χ",
}  # fmt: skip
_COMMANDS = {
    **GREEK, "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "neq": "≠", "approx": "≈", "sum": "Σ", "to": "→",
    "infty": "∞", "nabla": "∇", "preceq": "⪯", "succeq": "⪰", "succ": "≻", "cdot": "·", "top": "ᵀ", "mapsto": "↦",
    "leftarrow": "←", "propto": "∝", "in": "∈", "ldots": "…", "emptyset": "∅", "ell": "ℓ", "gg": "≫", "times": "×",
    "quad": "  ", "ln": "ln", "log": "log", "min": "min", "max": "max", "arg": "arg", "exp": "exp",
    "left": "", "right": "", "big": "", "bigl": "", "bigr": "", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈",
    "rceil": "⌉", "sup": "sup", "lbrace": "{", "rbrace": "}", "mid": "|", "pm": "±",
}  # fmt: skip
_LETTERS = {"mathbb": {"E": "𝔼", "R": "ℝ", "P": "ℙ"}}
_SUPERSCRIPT = dict(zip("0123456789+-=()nikKtdT*", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵏᴷᵗᵈᵀ*", strict=True)) | {"ᵀ": "ᵀ", "−": "⁻"}
_SUBSCRIPT = dict(zip("0123456789+-=()aeijkmnoprstx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢⱼₖₘₙₒₚᵣₛₜₓ", strict=True)) | {"γ": "ᵧ"}
_ACCENTS = {"tilde": "\u0303", "hat": "\u0302", "bar": "\u0304"}
_TOKEN = re.compile(r"\\([A-Za-z]+)|\\(.)|([{}_^])|(.)", re.DOTALL)
_SINGLE = re.compile(r"^(?:\d+|\w[\u0300-\u036f]?(?:_\w+|_\([^()]*\))?[⁰-⁹²³¹ⁿᵏᴷ₀-₉ᵢⱼₖ]*)$")
_FACTOR = re.compile(r"[\w(]|\\(?!(?:le|leq|ge|geq|ln|to|quad|right|in|approx)\b|[,;!}])")
_PRODUCT = re.compile(r"^[^ +−=<>≤≥,/]+$")


def from_prose(text: str) -> str:
    """Returns prose whose mathematics, between dollar signs, is Unicode."""
    parts = re.split(r"\$([^$]*)\$", text)
    return "".join(from_latex(part) if index % 2 else _words(part) for index, part in enumerate(parts))


def _words(prose: str) -> str:
    """Prose with its ASCII mathematics, such as gamma <= 1/L, in Unicode."""
    named = re.sub(r"\b(" + "|".join(GREEK) + r")(?![\w:])", lambda match: GREEK[match[1]], prose.replace("`", ""))
    return named.replace("<=", "≤").replace(">=", "≥").replace("->", "→")


def from_latex(latex: str) -> str:
    """Returns a formula in Unicode; what has no such form keeps its letters, as in x_(1:K)."""
    return re.sub(" +", " ", _Reader(latex).all()).strip()


class _Reader:
    """A formula read from left to right."""

    def __init__(self, latex: str):
        self.tokens = [match for match in _TOKEN.finditer(latex)]
        self.at = 0

    def all(self) -> str:
        written = ""
        while self.at < len(self.tokens):
            written += self.one()
        return written

    def one(self) -> str:
        """The next symbol, command with its arguments, or group."""
        command, escaped, mark, other = self.tokens[self.at].groups()
        self.at += 1
        if escaped:
            return {"|": "‖", ",": " ", ";": " ", "!": "", "\\": "; ", " ": " "}.get(escaped, escaped)
        if mark == "{":
            written = ""
            while self.at < len(self.tokens) and self.tokens[self.at][0] != "}":
                written += self.one()
            self.at += 1
            return written
        if mark in ("_", "^"):
            return self.script(mark)
        if mark == "}":
            return ""
        return self.command(command) if command else other.replace("-", "−")

    def argument(self) -> str:
        while self.at < len(self.tokens) and self.tokens[self.at][0] == " ":
            self.at += 1
        return self.one() if self.at < len(self.tokens) else ""

    def continues(self) -> bool:
        """Whether a factor follows, so that a fraction needs parentheses."""
        rest = "".join(match[0] for match in self.tokens[self.at : self.at + 2]).lstrip()
        return bool(_FACTOR.match(rest))

    def script(self, mark: str) -> str:
        inside = self.argument()
        table = _SUPERSCRIPT if mark == "^" else _SUBSCRIPT
        if all(character in table for character in inside):
            return "".join(table[character] for character in inside)
        return mark + (inside if len(inside) == 1 or (mark == "_" and inside.isalpha()) else f"({inside})")

    def command(self, name: str) -> str:
        if name in ("frac", "tfrac", "dfrac"):
            above, below = self.argument(), self.argument()
            halves = {("1", "2"): "½", ("1", "4"): "¼"}
            above = above if _PRODUCT.match(above) and above.count("(") == above.count(")") else f"({above})"
            whole = f"{above}/{_factor(below)}"
            return halves.get((above, below)) or (f"({whole})" if self.continues() else whole)
        if name == "sqrt":
            return f"√{_factor(self.argument())}"
        if name in _ACCENTS:
            return unicodedata.normalize("NFC", self.argument() + _ACCENTS[name])
        if name in _LETTERS:
            letter = self.argument()
            return _LETTERS[name].get(letter, letter)
        if name in ("mathrm", "text", "operatorname", "mathcal"):
            return self.argument()
        if name in ("begin", "end"):
            self.argument()
            return ""
        known = _COMMANDS.get(name)
        if known is None:
            return name
        after = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        if known and known in "≤≥≠≈→⪯⪰≻↦←∝∈≫×":
            return f" {known} "
        return known + " " if known.isascii() and known.isalpha() and after.isalnum() else known


def _factor(text: str) -> str:
    return text if _SINGLE.match(text) else f"({text})"
