"""The benchmark of the store at a small size."""

from benchmarks.data.store import measure, report


def test_the_cost_of_a_store(tmp_path):
    cost = measure(clients=300, examples=3000, rounds=3, folder=tmp_path)
    assert (cost.clients, cost.examples, len(cost.gather_milliseconds)) == (300, 3000, 3)
    assert cost.before_mb <= cost.opened_mb < cost.before_mb + 50
    assert "300 clients, 3,000 examples" in report(cost)
