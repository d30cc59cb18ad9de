"""Contact sheets of the generated datasets."""

import pytest

from lur.analysis import contact_sheets
from lur.data.generate import dialect, handwriting, images, posts

GENERATORS = {"emnist": handwriting, "cifar100": images, "shakespeare": dialect, "stackoverflow": posts}


@pytest.mark.parametrize("dataset", GENERATORS)
def test_a_sheet_is_a_png(dataset, tmp_path):
    clients = list(GENERATORS[dataset].clients(2))
    path = contact_sheets.draw(dataset, clients, tmp_path / "deep" / f"{dataset}.png", title="two clients")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_unknown_datasets_and_no_clients_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"dataset must be one of emnist, .* got 'mnist'"):
        contact_sheets.draw("mnist", [("a", {})], tmp_path / "a.png", "")
    with pytest.raises(ValueError, match="clients must have at least one"):
        contact_sheets.draw("emnist", [], tmp_path / "a.png", "")
