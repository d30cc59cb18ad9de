"""Every field of a public record (NamedTuple or dataclass) is documented."""

import ast
import re

import pytest

pytest.importorskip("markdown", reason="the extra `docs` is not installed")

from website.included_code import ROOT
from website.pages import ROOMS, documented_modules


def is_record(node):
    """Whether a class is a NamedTuple or a dataclass."""
    names = {ast.unparse(base).split(".")[-1] for base in node.bases}
    names |= {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}
    return bool(names & {"NamedTuple", "dataclass"})


def documented_fields(node):
    """Fields in the Attributes section, annotated with a help text, or followed by a string."""
    section = re.search(r"^Attributes:\n(.*?)(\n\S|\Z)", ast.get_docstring(node) or "", re.DOTALL | re.MULTILINE)
    names = set(re.findall(r"^ {2,4}(\w+(?:, \w+)*):", section[1] if section else "", re.MULTILINE))
    fields = {name for listed in names for name in listed.split(", ")}
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            is_described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if is_described or ast.unparse(field.annotation).startswith("Annotated["):
                fields.add(field.target.id)
    return fields


def undocumented_fields(source):
    """Class and name of the undocumented fields of the public records in a module."""
    missing = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and is_record(node):
            fields = [
                field.target.id
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            ]
            known = documented_fields(node)
            missing += [f"{node.name}.{name}" for name in fields if not name.startswith("_") and name not in known]
    return missing


def path_of(module):
    """The file of a module or package."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.package)
def test_the_fields_of_public_records_are_documented(room):
    missing = {
        module: fields
        for module in documented_modules(room, ROOT)
        if (fields := undocumented_fields(path_of(module).read_text()))
    }
    assert not missing


def test_an_undocumented_field_is_noticed():
    source = '''
class Point(NamedTuple):
    """A point.

    Attributes:
        x, y: Coordinates.
    """

    x: float
    y: float
    z: float
'''
    assert undocumented_fields(source) == ["Point.z"]
