"""Code in pages: a comment ``<!-- code: path names -->`` stands for the functions of these names in a file.

A name may be qualified by the classes and functions around it, such as ``InnerLoop.__call__``.
"""

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = re.compile(r"^<!-- code: (\S+) ([\w. ]+?) -->$", re.MULTILINE)


def function_nodes(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions of a file, nested ones included, by name and by every qualified name."""
    nodes = {}

    def visit(parent: ast.AST, prefix: tuple[str, ...]) -> None:
        for node in ast.iter_child_nodes(parent):
            is_named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            names = (*prefix, node.name) if is_named else prefix
            if isinstance(node, ast.FunctionDef):
                nodes.update({".".join(names[k:]): node for k in range(len(names))})
            visit(node, names)

    visit(ast.parse(path.read_text()), ())
    return nodes


def included_functions(page: str) -> list[tuple[Path, ast.FunctionDef]]:
    """The file and the definition of every function that a page includes, in the order of the page."""
    included = []
    for name, functions in INCLUDE.findall(page):
        path = ROOT / name
        nodes = function_nodes(path)
        for function in functions.split():
            if function not in nodes:
                raise ValueError(f"{path} must define the function {function}, which a page includes")
            included.append((path, nodes[function]))
    return included


def source_of(path: Path, node: ast.FunctionDef) -> str:
    """The source of a function without its indentation."""
    return textwrap.dedent(ast.get_source_segment(path.read_text(), node, padded=True) or "").rstrip()


def with_code(page: str) -> str:
    """A page with its comments `code: path names` replaced by blocks of code."""

    def block(match: re.Match[str]) -> str:
        return "```python\n" + "\n\n".join(source_of(*found) for found in included_functions(match[0])) + "\n```"

    return INCLUDE.sub(block, page)
