r"""TensorFlow Datasets, read by random access without TensorFlow and partitioned among clients.

The dataset must have been prepared on this machine in a format with random access; this module downloads nothing:

    tfds.builder("cifar100", data_dir=...).download_and_prepare(file_format="array_record")

Three datasets are converted to their federated counterparts:

    cifar100          image, label, coarse_label; Pachinko allocation, 100 examples each (500 and 100 clients)
    emnist/<config>   pixels upright with ink 0 on background 1, label; TFDS has no writers, so choose a partition
    tiny_shakespeare  snippets, one client per speaking role (the text does not name the plays)

Any other dataset keeps its features: arrays of fixed shape, vectors of varying length, text. Only the columns that
determine the partition and the examples of one client are in memory.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from lur._extras import optional_imports
from lur.data.ragged import Ragged, from_rows
from lur.data.store import StoreError
from lur.data.writer import Examples

Partition = Literal["pachinko", "dirichlet", "column", "iid", "role"]
PARTITIONS = ("pachinko", "dirichlet", "column", "iid", "role")
USUAL_PARTITION: Mapping[str, Partition] = {"cifar100": "pachinko", "tiny_shakespeare": "role"}
RECORDS_PER_READ = 1024


def clients(
    name: str | Path,
    *,
    split: str = "train",
    data_dir: str | Path | None = None,
    partition: Partition | None = None,
    num_clients: int | None = None,
    per_client: int = 100,
    alpha: float = 0.1,
    beta: float = 10.0,
    column: str | None = None,
    label: str = "label",
    coarse: str = "coarse_label",
    features: Sequence[str] | None = None,
    seed: int = 0,
) -> Iterator[tuple[str, Examples]]:
    """Return the clients of a prepared dataset.

    Args:
      name: the name of the dataset in TFDS ("cifar100", "emnist/byclass", "mnist:3.0.1"), or the folder with its
        dataset_info.json.
      split: a split in the notation of TFDS, such as "train" or "train[:50%]".
      data_dir: the folder of prepared datasets; by default TFDS_DATA_DIR or ~/tensorflow_datasets.
      partition: "pachinko" over `coarse` and `label` with `alpha` and `beta`, `per_client` examples per client;
        "dirichlet" over `label` with `alpha`; "column", one client per value of `column`; "iid"; or "role", for plays
        in one long text. cifar100 and tiny_shakespeare have a default.
      num_clients: the number of clients for "dirichlet" and "iid", which need it, and for "pachinko", by default as
        many as there are examples for.
      per_client: the number of examples per client for "pachinko".
      alpha: the concentration over (coarse) labels.
      beta: the concentration over fine labels.
      column: the feature that identifies clients for "column"; the text for "role", by default ``text``.
      label: the feature with the (fine) labels.
      coarse: the feature with the coarse labels.
      features: the features to keep; by default all.
      seed: the seed of the partition; the same seed and files give the same clients.
    """
    source = Source(name, data_dir, split)
    partition = partition or USUAL_PARTITION.get(source.name)
    if partition not in PARTITIONS:
        raise ValueError(f"partition must be one of {', '.join(PARTITIONS)} for {source.name}, got {partition!r}")
    if partition == "role":
        return clients_by_role(source, column or "text")
    names = source.checked_names(features)
    rng = np.random.default_rng(seed)
    ids: list[str] | None = None
    if partition == "column":
        ids, indices = by_value(source.column(required("column", column, partition)))
    else:
        indices = partitioned(source, rng, partition, num_clients, per_client, alpha, beta, label, coarse)
    convert = as_federated_emnist if source.name == "emnist" and {"image", "label"} <= set(names) else dict
    return client_examples(source, names, indices, ids, convert)


def partitioned(
    source: "Source",
    rng: np.random.Generator,
    partition: str,
    num_clients: int | None,
    per_client: int,
    alpha: float,
    beta: float,
    label: str,
    coarse: str,
) -> list[np.ndarray]:
    """Return each client's examples under the partition "pachinko", "dirichlet" or "iid"."""
    from lur.data import partition as partitions

    if partition == "pachinko":
        if per_client < 1:
            raise ValueError(f"per_client must be >= 1, got {per_client}")
        number = len(source) // per_client if num_clients is None else num_clients
        labels = source.columns((coarse, label))
        return list(partitions.pachinko(rng, labels[coarse], labels[label], number, per_client, alpha, beta))
    number = required("num_clients", num_clients, partition)
    if partition == "dirichlet":
        return list(partitions.dirichlet(rng, source.column(label), number, alpha))
    return list(partitions.iid(rng, len(source), number))


def by_value(values: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    """Return one client per value; its id is the value."""
    from lur.data.partition import by_column

    indices = list(by_column(values))
    return [client_id(values[rows[0]]) for rows in indices], indices


def client_id(value: Any) -> str:
    """Return a value as a client id."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def required(name: str, value: Any, partition: str) -> Any:
    """Return an argument, or raise a ValueError if it is None although the partition needs it."""
    if value is None:
        raise ValueError(f"{name} must be given for the partition {partition!r}, got None")
    return value


def client_examples(
    source: "Source",
    names: Sequence[str],
    indices: Sequence[np.ndarray],
    ids: Sequence[str] | None,
    convert: Callable[[dict[str, Any]], Examples],
) -> Iterator[tuple[str, Examples]]:
    """Yield each client; one without examples has no features."""
    for i, rows in enumerate(indices):
        yield ids[i] if ids else str(i), convert(source.examples(rows, names)) if len(rows) else {}


def as_federated_emnist(examples: dict[str, Any]) -> Examples:
    """Return examples of EMNIST with the features of the federated dataset."""
    return {"pixels": dark_on_light(examples["image"]), "label": examples["label"]}


def dark_on_light(image: UInt8[np.ndarray, "n 28 28 1"]) -> Float32[np.ndarray, "n 28 28"]:
    """Return upright images with ink 0 on background 1 from TFDS's, which are transposed and white on black."""
    return np.float32(1) - image[..., 0].transpose(0, 2, 1).astype(np.float32) / np.float32(255)


def clients_by_role(source: "Source", column: str) -> Iterator[tuple[str, Examples]]:
    """Return one client per role of the plays in a text feature, in the order in which they first speak."""
    roles: dict[str, list[bytes]] = {}
    for i in range(len(source)):
        for role, speeches in speeches_by_role(source.text(column, i)).items():
            roles.setdefault(role, []).extend(speeches)
    if not roles:
        raise StoreError(f"{source.folder}: expected roles that speak (NAME: and a speech), found none in {column}")
    return ((role, {"snippets": speeches}) for role, speeches in roles.items())


HEADING = re.compile(rb"([A-Z][^:\n]{0,40}):")


def speeches_by_role(text: bytes) -> dict[str, list[bytes]]:
    """Return the speeches of each role of a play, in which a paragraph is the line ``NAME:`` followed by a speech.

    A paragraph without a name continues the speech before it. Text before the first name is ignored.
    """
    roles: dict[str, list[bytes]] = {}
    current: list[bytes] | None = None
    for paragraph in re.split(rb"\n\s*\n", text.replace(b"\r\n", b"\n").strip()):
        first, _, rest = paragraph.partition(b"\n")
        heading = HEADING.fullmatch(first.strip())
        if heading and rest.strip():
            current = roles.setdefault(client_id(heading[1]), [])
            current.append(rest.strip())
        elif not heading and current is not None:
            current[-1] += b"\n" + paragraph.strip()
    return roles


class Source:
    """One split of a prepared dataset, read by lists of indices."""

    def __init__(self, name: str | Path, data_dir: str | Path | None, split: str):
        self.tfds = import_tfds()
        self.folder = prepared_folder(name, data_dir)
        self.split = split
        try:
            self.builder = self.tfds.builder_from_directory(self.folder)
        except Exception as error:  # TFDS, protobuf and json each raise their own errors
            raise StoreError(f"{self.folder}: expected a dataset that TFDS can read, {error}") from error
        try:
            self.records = self.builder.as_data_source(split)
        except NotImplementedError as error:
            raise StoreError(
                f"{self.folder}: expected a format with random access, found {self.builder.info.file_format.value}; "
                'prepare it elsewhere with download_and_prepare(file_format="array_record")'
            ) from error
        except ValueError as error:
            raise StoreError(f"{self.folder}: expected the split {split!r}, {error}") from error
        self.sources: dict[tuple[str, ...], Any] = {(): self.records}
        self.name: str = self.builder.name
        self.features: Mapping[str, Any] = dict(self.builder.info.features)
        if not len(self):
            raise StoreError(f"{self.folder}: expected examples in {split!r}, found none")

    def __len__(self) -> int:
        return len(self.records)

    def checked_names(self, names: Sequence[str] | None) -> list[str]:
        """Return the features to keep, or raise a StoreError unless a store can hold each of them."""
        chosen = list(self.features) if names is None else list(names)
        for name in chosen:
            self.check_feature(name)
            shape = self.features[name].shape
            fixed = isinstance(shape, tuple) and (None not in shape or shape == (None,))
            if not fixed or (self.is_text(name) and shape != ()):
                raise StoreError(
                    f"{self.folder}: expected arrays of fixed shape, vectors or text, found {name} "
                    f"{self.features[name]}; choose other `features`"
                )
        return chosen

    def check_feature(self, name: str) -> None:
        if name not in self.features:
            raise StoreError(f"{self.folder}: expected the feature {name!r}, found {', '.join(self.features)}")

    def is_text(self, name: str) -> bool:
        return np.dtype(self.features[name].np_dtype).kind in "OSU"

    def records_with(self, names: Sequence[str]) -> Any:
        """Return the records; images not among `names` are not decoded, because decoding takes most of the time."""
        images = tuple(
            k for k, f in self.features.items() if isinstance(f, self.tfds.features.Image) and k not in names
        )
        if images not in self.sources:
            skipped = {name: self.tfds.decode.SkipDecoding() for name in images}
            self.sources[images] = self.builder.as_data_source(self.split, decoders=skipped)
        return self.sources[images]

    def fetch(self, records: Any, rows: Sequence[int]) -> Sequence[Any]:
        """Return the records at these positions. A damaged file is a StoreError that names it."""
        try:
            return records.__getitems__([*rows])
        except Exception as error:  # array_record, protobuf, zlib and pillow each raise their own errors
            cause = f"{type(error).__name__}: {error}"
            raise StoreError(f"{self.folder}: expected valid records {rows[0]} to {rows[-1]}, {cause}") from error

    def columns(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return scalar or text features of all examples."""
        for name in names:
            self.check_feature(name)
            if self.features[name].shape != ():
                raise StoreError(
                    f"{self.folder}: expected one value of {name} per example, found {self.features[name]}"
                )
        records = self.records_with(names)
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for start in range(0, len(self), RECORDS_PER_READ):
            for record in self.fetch(records, range(start, min(start + RECORDS_PER_READ, len(self)))):
                for name in names:
                    columns[name].append(record[name])
        return {name: np.array(values, object if self.is_text(name) else None) for name, values in columns.items()}

    def column(self, name: str) -> np.ndarray:
        """Return a scalar or text feature of all examples."""
        return self.columns((name,))[name]

    def text(self, name: str, i: int) -> bytes:
        """Return a text feature of example i."""
        self.check_feature(name)
        if not self.is_text(name):
            raise StoreError(f"{self.folder}: expected the text {name}, found {self.features[name]}")
        return self.fetch(self.records, (i,))[0][name]

    def examples(self, rows: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """Return the examples at these positions."""
        records = self.fetch(self.records_with(names), rows.tolist())
        return {name: self.stacked(name, [record[name] for record in records]) for name in names}

    def stacked(self, name: str, values: list[Any]) -> np.ndarray | Ragged | list[bytes]:
        """Return one feature of several examples as one array. Labels become int32."""
        feature = self.features[name]
        if self.is_text(name):
            return values
        dtype = np.dtype(np.int32 if isinstance(feature, self.tfds.features.ClassLabel) else feature.np_dtype)
        if feature.shape == (None,):
            return from_rows([np.asarray(value, dtype) for value in values], dtype)
        return np.stack([np.asarray(value, dtype) for value in values])


def import_tfds() -> Any:
    """Return the module tensorflow_datasets."""
    with optional_imports("reading TFDS"):
        import tensorflow_datasets as tfds
    return tfds


def prepared_folder(name: str | Path, data_dir: str | Path | None) -> Path:
    """Return the folder of the newest version of a dataset. It must exist: preparing it could download data."""
    if (Path(name) / "dataset_info.json").is_file():
        return Path(name)
    root = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    base_name, _, version = str(name).partition(":")
    folder = root / base_name
    versions = [
        path.parent
        for depth in ("*", "*/*")
        for path in folder.glob(f"{depth}/dataset_info.json")
        if re.fullmatch(r"\d+\.\d+\.\d+", path.parent.name) and version in ("", path.parent.name)
    ]
    configs = sorted({path.parent for path in versions})
    if len(configs) > 1:
        names = ", ".join(str(path.relative_to(root)) for path in configs)
        raise StoreError(f"{folder}: expected one configuration, found several; name one of {names}")
    if not versions:
        raise StoreError(
            f"{folder}: expected the dataset {str(name)!r} prepared there, found none. With a network, run "
            f'tfds.builder("{name}", data_dir="{root}").download_and_prepare(file_format="array_record")'
        )
    return max(versions, key=lambda path: tuple(map(int, path.name.split("."))))
