"""`lur bench` and `lur reproduce` outside a checkout, where there is no folder benchmarks/."""

import pytest

from lur.cli import siblings
from lur.cli.bench import bench
from lur.cli.reproduce import reproduce


@pytest.mark.parametrize(
    ("command", "run"), [("lur bench", lambda: bench("grid")), ("lur reproduce", lambda: reproduce("fig1"))]
)
def test_outside_a_checkout_the_error_says_where_benchmarks_are(tmp_path, monkeypatch, command, run):
    monkeypatch.setattr(siblings, "HOME", tmp_path)
    with pytest.raises(ValueError, match=f"`{command}` needs the folder benchmarks/, which is in the repository only"):
        run()
