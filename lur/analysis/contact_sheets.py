"""Contact sheets: some clients of a dataset, and statistics of all of them, on one page."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from lur._extras import optional_imports
from lur.plots import COLOURS, STYLE
from lur.printable_text import printable

Clients = Sequence[tuple[str, Mapping[str, Any]]]

IMAGE_CLIENTS = 12  # clients on a sheet of images
TEXT_CLIENTS = 5  # clients on a sheet of text
IMAGES_PER_CLIENT = 24
EMNIST = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _decoded(values: Any) -> list[str]:
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]


def _labels(features: Mapping[str, Any], name: str = "label") -> np.ndarray:
    return np.asarray(features[name]).reshape(-1).astype(np.int64)


def _draw_images(axes: Any, clients: Clients, feature: str) -> None:
    """Draw a row of images per client, sorted by label and evenly spread over the labels."""
    sample = clients[:IMAGE_CLIENTS]
    first = np.asarray(sample[0][1][feature])
    side, channels = first.shape[1], first.shape[3:]
    page = np.ones((len(sample), side + 2, IMAGES_PER_CLIENT, side + 2, *channels))
    for row, (_, features) in zip(page, sample, strict=True):
        images = np.asarray(features[feature])
        scaled = images / 255 if images.dtype == np.uint8 else images
        order = np.argsort(_labels(features), kind="stable")
        picks = order[np.linspace(0, len(order) - 1, min(IMAGES_PER_CLIENT, len(order))).astype(int)]
        row[1:-1, : len(picks), 1:-1] = np.moveaxis(scaled[picks], 0, 1)
    page = page.reshape(len(sample) * (side + 2), IMAGES_PER_CLIENT * (side + 2), *channels)
    axes.imshow(page, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    axes.set_yticks(
        (np.arange(len(sample)) + 0.5) * (side + 2) - 0.5, [printable(name) for name, _ in sample], family="monospace"
    )
    axes.set_xticks([])
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_class_shares(axes: Any, clients: Clients, feature: str, classes: int, ticks: Sequence[str] = ()) -> None:
    """Draw the share of each class in each client."""
    sample = clients[:IMAGE_CLIENTS]
    counts = np.stack([np.bincount(_labels(features, feature), minlength=classes) for _, features in sample])
    axes.imshow(counts / counts.sum(1, keepdims=True), cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    axes.set(title="share of each class, by client", xlabel=feature, yticks=[])
    axes.grid(False)
    axes.set_xticks(range(classes), ticks or [str(k) for k in range(classes)], fontsize=5)


def _draw_histogram(axes: Any, values: Any, title: str, xlabel: str, log: bool = False) -> None:
    values = np.asarray(values)
    low, high = int(values.min()), int(values.max())
    step = 1 + (high - low) // 24
    bins = np.geomspace(max(low, 1), high + 1, 16) if log else np.arange(low, high + 1 + step, step) - 0.5
    axes.hist(values, bins=bins, color=COLOURS[0], edgecolor="white", linewidth=0.5)
    axes.set(title=title, xlabel=xlabel, **({"xscale": "log"} if log else {}))


def _draw_bars(axes: Any, counts: np.ndarray, title: str, xlabel: str, ticks: Sequence[str] = ()) -> None:
    axes.bar(range(len(counts)), counts, color=COLOURS[0], width=0.85)
    axes.set(title=title, xlabel=xlabel)
    axes.grid(False, axis="x")
    if ticks:
        axes.set_xticks(range(len(counts)), ticks, fontsize=5)


def _draw_columns(axes: Any, columns: Sequence[tuple[str, list[str]]], lines: int) -> None:
    """Draw a column of text per client, cut to this number of lines."""
    axes.set_axis_off()
    for k, (name, column) in enumerate(columns):
        x = k / len(columns)
        axes.text(
            x, 1.0, printable(name), family="monospace", weight="bold", size=7, va="top", color=COLOURS[0]
        ).set_in_layout(False)
        body = "\n".join(map(printable, column[:lines]))
        axes.text(x, 0.965, body, family="monospace", size=5.6, va="top", linespacing=1.25).set_in_layout(False)


def _draw_emnist(figure: Any, clients: Clients) -> None:
    grid = figure.subplot_mosaic("AAA;BCD", height_ratios=(4.2, 1))
    _draw_images(grid["A"], clients, "pixels")
    _draw_class_shares(grid["B"], clients, "label", len(EMNIST), EMNIST)
    total = np.bincount(np.concatenate([_labels(features) for _, features in clients]), minlength=len(EMNIST))
    _draw_bars(grid["C"], total, f"examples per class, {len(clients)} clients", "character", EMNIST)
    _draw_histogram(grid["D"], [len(features["label"]) for _, features in clients], "clients by size", "examples")


def _draw_cifar100(figure: Any, clients: Clients) -> None:
    grid = figure.subplot_mosaic("AAA;BCD", height_ratios=(4.2, 1))
    _draw_images(grid["A"], clients, "image")
    _draw_class_shares(grid["B"], clients, "coarse_label", 20)
    total = np.bincount(np.concatenate([_labels(features) for _, features in clients]), minlength=100)
    _draw_bars(grid["C"], total, f"examples per class, {len(clients)} clients", "label")
    distinct = [len(np.unique(_labels(features))) for _, features in clients]
    _draw_histogram(grid["D"], distinct, "clients by number of classes", "distinct labels")


def _draw_shakespeare(figure: Any, clients: Clients) -> None:
    grid = figure.subplot_mosaic("AAA;BCD", height_ratios=(4.2, 1))
    columns = []
    long_roles = [client for client in clients if len(client[1]["snippets"]) > 4] or clients
    for name, features in long_roles[: TEXT_CLIENTS - 1]:
        lines = []
        for snippet in _decoded(features["snippets"][:40]):
            for line in snippet.splitlines():
                lines += wrap(line, 66, subsequent_indent="  ") or [""]
            lines.append("- - -")
        columns.append((f"{name} ({len(features['snippets'])} snippets)", lines))
    _draw_columns(grid["A"], columns, 62)
    snippets = [text for _, features in clients for text in _decoded(features["snippets"])]
    characters = Counter("".join(snippets)).most_common(40)
    tick_labels = [{" ": "␣", "\n": "↵", "\r": "↩"}.get(character, printable(character)) for character, _ in characters]
    counts = np.array([count for _, count in characters])
    _draw_bars(grid["B"], counts / counts.sum(), "the 40 most frequent characters", "character", tick_labels)
    _draw_histogram(grid["C"], [len(text) for text in snippets], "snippets by length", "characters")
    sizes = [len(features["snippets"]) for _, features in clients]
    _draw_histogram(grid["D"], sizes, f"clients by size, {len(clients)} clients", "snippets", log=True)


def _draw_stackoverflow(figure: Any, clients: Clients) -> None:
    grid = figure.subplot_mosaic("AAAA;BCDE", height_ratios=(4.2, 1))
    columns = []
    for name, features in clients[:TEXT_CLIENTS]:
        lines, previous = [], ""
        fields = [_decoded(features[field][:40]) for field in ("title", "tags", "type", "tokens")]
        for title, tags, kind, tokens in zip(*fields, strict=True):
            if title != previous:
                lines += ["", *wrap(f"{kind.upper()}: {title}", 44), *wrap(f"[{tags.replace('|', '] [')}]", 44)]
                previous = title
            lines += wrap(tokens, 44, initial_indent="  ", subsequent_indent="  ")
        columns.append((f"{name} ({len(features['tokens'])} sentences)", lines))
    _draw_columns(grid["A"], columns, 62)
    sentences = [text.split() for _, features in clients for text in _decoded(features["tokens"])]
    words = np.sort([*Counter(word for sentence in sentences for word in sentence).values()])[::-1]
    grid["B"].loglog(np.arange(1, len(words) + 1), words / words.sum(), color=COLOURS[0])
    grid["B"].set(title="words", xlabel="rank", ylabel="frequency")
    tags = Counter(tag for _, features in clients for text in _decoded(features["tags"]) for tag in text.split("|"))
    counts = np.sort([*tags.values()])[::-1]
    grid["C"].loglog(np.arange(1, len(counts) + 1), counts / counts.sum(), color=COLOURS[1])
    grid["C"].set(title="tags", xlabel="rank")
    _draw_histogram(grid["D"], [len(sentence) for sentence in sentences], "sentences by length", "words")
    sizes = [len(features["tokens"]) for _, features in clients]
    _draw_histogram(grid["E"], sizes, f"clients by size, {len(clients)} clients", "sentences", log=True)


SHEETS: Mapping[str, Callable[[Any, Clients], None]] = {
    "emnist": _draw_emnist,
    "cifar100": _draw_cifar100,
    "shakespeare": _draw_shakespeare,
    "stackoverflow": _draw_stackoverflow,
}


def draw(dataset: str, clients: Clients, path: Path, title: str) -> Path:
    """Draw a contact sheet as a PNG.

    Args:
      dataset: the dataset whose features the clients have: emnist, cifar100, shakespeare or stackoverflow.
      clients: (client id, features). The first clients are drawn one by one; the histograms are of all.
      path: the file to write; its folder is created if it does not exist.
      title: the title of the sheet.

    Returns:
      The path.
    """
    with optional_imports("lur.analysis.contact_sheets"):
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

    if dataset not in SHEETS:
        raise ValueError(f"dataset must be one of {', '.join(SHEETS)}, got {dataset!r}")
    if not clients:
        raise ValueError("clients must have at least one client, got none")
    cycle = cycler(color=COLOURS)  # text of clients is not mathematics
    with rc_context({**STYLE, "axes.prop_cycle": cycle, "axes.titlesize": 8, "font.size": 7, "text.parse_math": False}):
        figure = Figure(figsize=(13, 9))
        SHEETS[dataset](figure, clients)
        figure.suptitle(title, fontsize=11, weight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", dpi=140)
    return path
