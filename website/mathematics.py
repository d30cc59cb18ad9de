r"""A Python-Markdown extension that converts mathematics to MathML when the site is built, without scripts or fonts.

It reads ``$...$`` and ``$$...$$`` in pages, and ``:math:`...``` and ``.. math::`` in docstrings. A formula that
`theory.reports.typeset.mathml` cannot read fails the build.
"""

import re
import textwrap
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from theory.reports.typeset import mathml

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^(?P=indent)(?P=fence) *$", re.DOTALL | re.MULTILINE
)
ROLE = re.compile(r":math:`([^`]+)`")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. math::[ ]*(?P<first>[^\n]*)\n(?P<rest>(?:(?P=indent) +[^\n]*\n|[ ]*\n)*)", re.MULTILINE
)
DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<![\s\\])\$(?![\w$])")


def display(latex: str) -> str:
    """A displayed formula. Wide ones scroll on their own and can be focused with the keyboard."""
    lines = [line for line in re.split(r"\\\\(?![a-zA-Z])", latex) if line.strip()]
    rendered = [mathml(line.strip().replace("&", ""), "block") for line in lines]
    return f'<div class="mathematics" tabindex="0">{"".join(rendered)}</div>'


class Mathematics(Preprocessor):
    """Replaces formulas by MathML before Markdown interprets their underscores and backslashes."""

    def run(self, lines: list[str]) -> list[str]:
        """The lines with placeholders for formulas; code stays unchanged."""
        kept: list[str] = []

        def keep(match: re.Match[str]) -> str:
            kept.append(match[0])
            return f"\x02code{len(kept) - 1}\x03"

        def stash_display(latex: str) -> str:
            return self.md.htmlStash.store(display(latex))

        def stash_inline(latex: str) -> str:
            return self.md.htmlStash.store(mathml(latex))

        def directive(match: re.Match[str]) -> str:
            body = f"{match['first']}\n{textwrap.dedent(match['rest'])}".strip()
            return f"\n{match['indent']}{stash_display(body)}\n\n"

        text = "\n".join(lines) + "\n"
        text = FENCE.sub(keep, text)
        text = DIRECTIVE.sub(directive, text)
        text = ROLE.sub(lambda match: stash_inline(match[1]), text)
        text = CODE.sub(keep, text)
        text = DISPLAY.sub(lambda match: f"\n\n{stash_display(match[1])}\n\n", text)
        text = INLINE.sub(lambda match: stash_inline(match[1]), text)
        text = re.sub(r"\x02code(\d+)\x03", lambda match: kept[int(match[1])], text)
        return text.split("\n")


class MathematicsExtension(Extension):
    """Registers `Mathematics` to run after line endings are normalised and before fenced code is extracted."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Mathematics(md), "mathematics", 28)


def makeExtension(**options: Any) -> MathematicsExtension:
    """The extension, by the name that Python-Markdown looks for."""
    return MathematicsExtension(**options)
