"""`lur train TASK`: one training run, with a progress bar and a summary."""

from pathlib import Path
from typing import Any, Literal

import tyro

from lur.commands.bars import bar


def train(
    task: tyro.conf.Positional[str],
    rounds: int = 100,
    client_lr: float | None = None,
    server_lr: float | None = None,
    server: Literal["sgd", "yogi", "adam"] | None = None,
    theta: str | None = None,
    clients_per_round: int | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    weighting: Literal["uniform", "examples"] = "uniform",
    layout: str = "auto",
    seed: int = 0,
    evaluate_every: int | None = None,
    store: Path | None = None,
    clients: int | None = None,
    heterogeneity: float = 1.0,
    data_seed: int = 0,
    word_count: Path | None = None,
    tag_count: Path | None = None,
    quiet: bool = False,
) -> int:
    """Train on one of the seven tasks: lur train digits

    Without a store the task's built-in data are used: generated stand-ins, named as such.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits.
        rounds: Rounds to run.
        client_lr: gamma; by default the task's.
        server_lr: eta; by default the task's.
        server: The server's optimiser; by default the task's.
        theta: The weights Theta: 1:10 (FedAvg), K=10 (FOMAML) or [1,0,2].
        clients_per_round: M.
        batch_size: B.
        epochs: Go so many times through each client's shuffled data instead of K draws with replacement.
        weighting: Weigh clients alike, as the paper, or by their numbers of examples.
        layout: How the clients axis runs: auto, vmap, sequential, chunked:4, sharded.
        seed: Of the run: initial model, clients, mini-batches.
        evaluate_every: Evaluate f(x) over all data every so many rounds; always at the end.
        store: An imported store to train on.
        clients: Clients of the built-in data.
        heterogeneity: The dial of the built-in data: 0 makes all clients alike.
        data_seed: Of the built-in data.
        word_count: The file stackoverflow.word_count, for the Stack Overflow tasks.
        tag_count: The file stackoverflow.tag_count, for tag prediction.
        quiet: Print nothing.
    """
    import jax

    from lur import tasks
    from lur.layouts import choose
    from lur.machine import prepare
    from lur.theta import parse
    from lur.train import Run, parameters
    from lur.train import train as run

    prepare()
    weights = None if theta is None else parse(theta)
    options = data_options(task, store, clients, heterogeneity, data_seed, word_count, tag_count)
    loaded = tasks.load(task, **options)
    config = Run(
        rounds=rounds,
        client_lr=client_lr,
        server_lr=server_lr,
        server=server,
        theta=weights,
        clients_per_round=clients_per_round,
        batch_size=batch_size,
        epochs=epochs,
        weighting=weighting,
        layout=layout,
        seed=seed,
        evaluate_every=evaluate_every,
    )
    say = (lambda line: None) if quiet else print
    about = loaded.store.about
    origin = "generated data" if about.get("generated") else str(about.get("source", "data"))
    say(f"{task}: {loaded.store.clients:,} clients, {loaded.store.examples:,} examples ({origin})")
    M = clients_per_round or loaded.settings.clients_per_round
    chosen = choose(jax.eval_shape(loaded.init, jax.random.key(0)), M, layout, linear=loaded.linear is not None)
    say(f"  layout {chosen.layout}: {chosen.why}")
    with bar(quiet, "loss", "rate") as progress:
        line = progress.add_task("rounds", total=rounds, loss="", rate="")
        at = None
        for at in run(loaded, config, chunk=lambda seconds: int(0.5 / max(seconds, 1e-4))):
            loss = f"loss {at.infos.loss.mean():.4f}"
            progress.update(line, completed=at.rounds, loss=loss, rate=f"{at.rounds / at.seconds:.1f} rounds/s")
            if at.evaluation is not None and at.rounds < rounds:
                say(f"  round {at.rounds}: {summary(loaded.metric, at.evaluation)}")
    assert at is not None  # a run has at least one round
    say(f"  {parameters(at.state.params):,} parameters, {rounds} rounds in {at.seconds:.1f} s")
    say(f"  after training: {summary(loaded.metric, at.evaluation)}")
    return 0


def summary(metric: str, found: Any) -> str:
    """An evaluation in words."""
    right = f", {metric} {found.accuracy:.1%}" if found.accuracy == found.accuracy else ""
    return f"loss f(x) = {found.loss:.4f}{right} over {found.examples:,} examples of {found.clients:,} clients"


def data_options(
    task: str,
    store: Path | None,
    clients: int | None,
    heterogeneity: float,
    seed: int,
    word_count: Path | None,
    tag_count: Path | None,
) -> dict[str, Any]:
    """What `lur.tasks.load` takes, from the flags."""
    from lur.data.readers import counts
    from lur.data.store import open_store

    options: dict[str, Any] = {"clients": clients, "heterogeneity": heterogeneity, "seed": seed}
    if store is not None:
        if task == "quadratic":
            raise ValueError(f"--store is not for quadratic, whose problem is generated, got {store}")
        options["store"] = open_store(store)
    for flag, path, tasks, name, read in (
        ("--word-count", word_count, ("stackoverflow_nwp", "stackoverflow_tp"), "vocabulary", counts.word_count),
        ("--tag-count", tag_count, ("stackoverflow_tp",), "tags", counts.tag_count),
    ):
        if path is not None:
            if task not in tasks:
                raise ValueError(f"{flag} is for {' and '.join(tasks)}, got the task {task}")
            options[name] = [word.encode() for word in read(path, 10_000 if name == "vocabulary" else 500)]
    return options
