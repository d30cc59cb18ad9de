"""The store's benchmark at a small size: it measures what it says."""

from benchmarks.data.store import measure, report


def test_figures(tmp_path):
    found = measure(clients=300, examples=3000, rounds=3, folder=tmp_path)
    assert (found.clients, found.examples, len(found.gather_milliseconds)) == (300, 3000, 3)
    assert found.before_mb <= found.opened_mb < found.before_mb + 50
    assert "300 clients, 3,000 examples" in report(found)
