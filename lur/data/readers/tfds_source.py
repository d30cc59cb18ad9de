r"""TensorFlow Datasets, read at random without TensorFlow and cut into clients.

The dataset must have been prepared on this machine in a format with random access; nothing is downloaded here:

    tfds.builder("cifar100", data_dir=...).download_and_prepare(file_format="array_record")

Three datasets come out as their federated counterparts do:

    cifar100          image, label, coarse_label; Pachinko allocation, 100 examples each (500 and 100 clients)
    emnist/<config>   pixels upright with ink 0 on a background of 1, label. TFDS has no writers: choose a partition
    tiny_shakespeare  snippets, one client per speaking role (of whichever play: the text does not name the plays)

Any other dataset keeps its features: arrays of fixed shape, vectors of varying length, text. Of the examples only
the columns that decide who owns them are held in memory, and one client's at a time.
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
USUAL: Mapping[str, Partition] = {"cifar100": "pachinko", "tiny_shakespeare": "role"}
CHUNK = 1024


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
    """The clients of a prepared dataset.

    Args:
      name: as TFDS names it ("cifar100", "emnist/byclass", "mnist:3.0.1"), or the folder with its dataset_info.json.
      split: as TFDS writes it, "train[:50%]" too.
      data_dir: where prepared datasets are; TFDS_DATA_DIR or ~/tensorflow_datasets if not given.
      partition: "pachinko" over `coarse` and `label` with `alpha` and `beta`, `per_client` examples each;
        "dirichlet" over `label` with `alpha`; "column", one client per value of `column`; "iid"; or "role", for
        plays in one long text. cifar100 and tiny_shakespeare have a usual one.
      num_clients: for "dirichlet" and "iid"; "pachinko" makes as many as the examples suffice for if not given.
      features: those to keep, all if not given.
      seed: of the partition. The same seed and the same files give the same clients.
    """
    source = Source(name, data_dir, split)
    partition = partition or USUAL.get(source.name)
    if partition not in PARTITIONS:
        raise ValueError(f"partition must be one of {', '.join(PARTITIONS)} for {source.name}, got {partition!r}")
    if partition == "role":
        return speaking_roles(source, column or "text")
    kept = source.kept(features)
    rng = np.random.default_rng(seed)
    ids: list[str] | None = None
    if partition == "column":
        ids, indices = by_value(source.column(given("column", column, partition)))
    else:
        indices = allocated(source, rng, partition, num_clients, per_client, alpha, beta, label, coarse)
    convert = upright if source.name == "emnist" and {"image", "label"} <= set(kept) else dict
    return examples_of(source, kept, indices, ids, convert)


def allocated(
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
    """Each client's examples, drawn."""
    from lur.data import partition as partitions

    if partition == "pachinko":
        if per_client < 1:
            raise ValueError(f"per_client must be >= 1, got {per_client}")
        number = len(source) // per_client if num_clients is None else num_clients
        labels = source.columns((coarse, label))
        return list(partitions.pachinko(rng, labels[coarse], labels[label], number, per_client, alpha, beta))
    number = given("num_clients", num_clients, partition)
    if partition == "dirichlet":
        return list(partitions.dirichlet(rng, source.column(label), number, alpha))
    return list(partitions.iid(rng, len(source), number))


def by_value(values: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    """One client per value, its id the value."""
    from lur.data.partition import by_column

    indices = list(by_column(values))
    return [plain(values[rows[0]]) for rows in indices], indices


def plain(value: Any) -> str:
    """A value as a client's id."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def given(name: str, value: Any, partition: str) -> Any:
    """An argument that a partition cannot do without."""
    if value is None:
        raise ValueError(f"{name} must be given for the partition {partition!r}, got None")
    return value


def examples_of(
    source: "Source",
    kept: Sequence[str],
    indices: Sequence[np.ndarray],
    ids: Sequence[str] | None,
    convert: Callable[[dict[str, Any]], Examples],
) -> Iterator[tuple[str, Examples]]:
    """Each client that got any example, with its examples."""
    for i, rows in enumerate(indices):
        if len(rows):
            yield ids[i] if ids else str(i), convert(source.examples(rows, kept))


def upright(examples: dict[str, Any]) -> Examples:
    """EMNIST as the federated one has it: TFDS's images are transposed, white on black."""
    return {"pixels": ink_on_paper(examples["image"]), "label": examples["label"]}


def ink_on_paper(image: UInt8[np.ndarray, "n 28 28 1"]) -> Float32[np.ndarray, "n 28 28"]:
    """Transposed images in white on black, upright in 0 on 1."""
    return np.float32(1) - image[..., 0].transpose(0, 2, 1).astype(np.float32) / np.float32(255)


def speaking_roles(source: "Source", text: str) -> Iterator[tuple[str, Examples]]:
    """One client per role of the plays in a text, in the order in which they first speak."""
    roles: dict[str, list[bytes]] = {}
    for i in range(len(source)):
        for role, said in speeches_by_role(source.texts(text, i)).items():
            roles.setdefault(role, []).extend(said)
    if not roles:
        raise StoreError(f"{source.folder}: expected roles that speak (NAME: and a speech), found none in {text}")
    return ((role, {"snippets": said}) for role, said in roles.items())


HEADING = re.compile(rb"([A-Z][^:\n]{0,40}):")


def speeches_by_role(text: bytes) -> dict[str, list[bytes]]:
    """The speeches of each role, where a paragraph is the line ``NAME:`` and the speech beneath.

    A paragraph without a name goes on with the speech before it. What comes before the first name has no role,
    and is left out.
    """
    roles: dict[str, list[bytes]] = {}
    current: list[bytes] | None = None
    for paragraph in re.split(rb"\n\s*\n", text.replace(b"\r\n", b"\n").strip()):
        first, _, rest = paragraph.partition(b"\n")
        heading = HEADING.fullmatch(first.strip())
        if heading and rest.strip():
            current = roles.setdefault(plain(heading[1]), [])
            current.append(rest.strip())
        elif not heading and current is not None:
            current[-1] += b"\n" + paragraph.strip()
    return roles


class Source:
    """One split of a prepared dataset, read by lists of indices."""

    def __init__(self, name: str | Path, data_dir: str | Path | None, split: str):
        self.tfds = imported()
        self.folder = prepared_folder(name, data_dir)
        self.split = split
        try:
            self.builder = self.tfds.builder_from_directory(self.folder)
        except Exception as error:  # TFDS's own, protobuf's, json's: whatever the description leads to
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

    def kept(self, names: Sequence[str] | None) -> list[str]:
        """The features to keep, each of a kind that a store can hold."""
        chosen = list(self.features) if names is None else list(names)
        for name in chosen:
            self.check(name)
            shape = self.features[name].shape
            fixed = isinstance(shape, tuple) and (None not in shape or shape == (None,))
            if not fixed or (self.is_text(name) and shape != ()):
                raise StoreError(
                    f"{self.folder}: expected arrays of fixed shape, vectors or text, found {name} "
                    f"{self.features[name]}; choose others by `features`"
                )
        return chosen

    def check(self, name: str) -> None:
        if name not in self.features:
            raise StoreError(f"{self.folder}: expected the feature {name!r}, found {', '.join(self.features)}")

    def is_text(self, name: str) -> bool:
        return np.dtype(self.features[name].np_dtype).kind in "OSU"

    def read(self, names: Sequence[str]) -> Any:
        """The records, the images not among `names` left undecoded: decoding takes most of the time."""
        images = tuple(
            k for k, f in self.features.items() if isinstance(f, self.tfds.features.Image) and k not in names
        )
        if images not in self.sources:
            skipped = {name: self.tfds.decode.SkipDecoding() for name in images}
            self.sources[images] = self.builder.as_data_source(self.split, decoders=skipped)
        return self.sources[images]

    def fetch(self, records: Any, rows: Sequence[int]) -> Sequence[Any]:
        """The records at these places; a damaged file is an error that says which."""
        try:
            return records.__getitems__([*rows])
        except Exception as error:  # array_record's, protobuf's, zlib's, pillow's: whatever the bytes lead to
            what = f"{type(error).__name__}: {error}"
            raise StoreError(f"{self.folder}: expected sound records {rows[0]} to {rows[-1]}, {what}") from error

    def columns(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Scalars or texts of all examples."""
        for name in names:
            self.check(name)
            if self.features[name].shape != ():
                raise StoreError(f"{self.folder}: expected one value of {name} an example, found {self.features[name]}")
        records = self.read(names)
        found: dict[str, list[Any]] = {name: [] for name in names}
        for start in range(0, len(self), CHUNK):
            for record in self.fetch(records, range(start, min(start + CHUNK, len(self)))):
                for name in names:
                    found[name].append(record[name])
        return {name: np.array(values, object if self.is_text(name) else None) for name, values in found.items()}

    def column(self, name: str) -> np.ndarray:
        """A scalar or a text of all examples."""
        return self.columns((name,))[name]

    def texts(self, name: str, i: int) -> bytes:
        """A text of example i."""
        self.check(name)
        if not self.is_text(name):
            raise StoreError(f"{self.folder}: expected the text {name}, found {self.features[name]}")
        return self.fetch(self.records, (i,))[0][name]

    def examples(self, rows: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """The examples at these places."""
        records = self.fetch(self.read(names), rows.tolist())
        return {name: self.stacked(name, [record[name] for record in records]) for name in names}

    def stacked(self, name: str, values: list[Any]) -> np.ndarray | Ragged | list[bytes]:
        """One feature of several examples. Labels become int32."""
        feature = self.features[name]
        if self.is_text(name):
            return values
        dtype = np.dtype(np.int32 if isinstance(feature, self.tfds.features.ClassLabel) else feature.np_dtype)
        if feature.shape == (None,):
            return from_rows([np.asarray(value, dtype) for value in values], dtype)
        return np.stack([np.asarray(value, dtype) for value in values])


def imported() -> Any:
    """The module tensorflow_datasets, needed here alone."""
    with optional_imports("reading TFDS"):
        import tensorflow_datasets as tfds
    return tfds


def prepared_folder(name: str | Path, data_dir: str | Path | None) -> Path:
    """The folder of a dataset's newest version. It is looked for, never made: preparing it may download."""
    if (Path(name) / "dataset_info.json").is_file():
        return Path(name)
    root = Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    plain_name, _, version = str(name).partition(":")
    folder = root / plain_name
    versions = [
        path.parent
        for depth in ("*", "*/*")
        for path in folder.glob(f"{depth}/dataset_info.json")
        if re.fullmatch(r"\d+\.\d+\.\d+", path.parent.name) and version in ("", path.parent.name)
    ]
    configs = sorted({path.parent for path in versions})
    if len(configs) > 1:
        found = ", ".join(str(path.relative_to(root)) for path in configs)
        raise StoreError(f"{folder}: expected one configuration, found several; name one of {found}")
    if not versions:
        raise StoreError(
            f"{folder}: expected the dataset {str(name)!r} prepared there, found none. Where there is a network: "
            f'tfds.builder("{name}", data_dir="{root}").download_and_prepare(file_format="array_record")'
        )
    return max(versions, key=lambda path: tuple(map(int, path.name.split("."))))
