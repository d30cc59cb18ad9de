"""Contact sheets of the generated datasets."""

import pytest

from lur.analysis import contact_sheets
from lur.data.generate import dialect, handwriting, images, posts

KINDS = {"emnist": handwriting, "cifar100": images, "shakespeare": dialect, "stackoverflow": posts}


@pytest.mark.parametrize("kind", KINDS)
def test_contact_sheets(kind, tmp_path):
    clients = list(KINDS[kind].clients(2))
    path = contact_sheets.draw(kind, clients, tmp_path / "deep" / f"{kind}.png", title="two clients")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_contact_sheets_refuse_what_they_do_not_know(tmp_path):
    with pytest.raises(ValueError, match=r"kind must be one of emnist, .* got 'mnist'"):
        contact_sheets.draw("mnist", [("a", {})], tmp_path / "a.png", "")
    with pytest.raises(ValueError, match="clients must have at least one"):
        contact_sheets.draw("emnist", [], tmp_path / "a.png", "")
