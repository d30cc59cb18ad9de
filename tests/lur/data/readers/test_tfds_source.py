"""TFDS: small datasets written offline in the format of TFDS and read as clients."""

import logging
import re
import shutil
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lur.data import prepare
from lur.data.ragged import Ragged
from lur.data.readers import tfds_source
from lur.data.store import StoreError
from lur.data.writer import in_memory

tfds = pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")
Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")

PLAY = b"""tail of a speech.

ROMEO:
But, soft! what light
breaks?

First Citizen:
Speak: speak.

a second paragraph.

ROMEO:
Ay me.

JULIET:

"""


def cifar(n=400):
    """Twenty coarse labels with five fine labels each; the image encodes the number of the example."""
    for i in range(n):
        image = np.full((32, 32, 3), i % 256, np.uint8)
        yield {"image": image, "label": i % 100, "coarse_label": (i % 100) // 5, "id": f"e{i:04d}"}


def letters(n=30):
    rng = np.random.default_rng(0)
    for i in range(n):
        yield {"image": rng.integers(0, 256, (28, 28, 1)).astype(np.uint8), "label": i % 62}


def mixed(n=23):
    for i in range(n):
        vector = np.arange(i % 4, dtype=np.int32) + i
        yield {
            "x": np.full((2, 3), i, np.float32),
            "words": vector,
            "who": f"wérd{i % 3}",
            "score": i / 2,
            "kind": i % 2,
        }


def prepared(folder, name, features, rows, *, config=None):
    """Write rows as a dataset. TFDS shuffles them."""
    written = list(rows)

    def info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def splits(self, manager):
        return {"train": enumerate(written), "test": enumerate(written[: -(-len(written) // 2)])}

    body = {
        "VERSION": tfds.core.Version("1.0.0"),
        "_info": info,
        "_split_generators": splits,
        "_generate_examples": lambda self: None,
        "name": name,
        "__module__": __name__,
        "code_path": None,
        "BUILDER_CONFIGS": [tfds.core.BuilderConfig(name=config)] if config else [],
    }
    builder = type(name.title(), (tfds.core.GeneratorBasedBuilder,), body)(data_dir=folder, file_format="array_record")
    builder.download_and_prepare()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Four datasets, prepared once."""
    folder = tmp_path_factory.mktemp("tfds")
    F = tfds.features
    logging.getLogger("absl").setLevel(logging.ERROR)
    tfds.disable_progress_bar()
    png = folder / "png"
    png.mkdir()
    drawn = []
    for i, row in enumerate(letters()):
        Image.fromarray(row["image"][..., 0]).save(png / f"{i}.png")
        drawn.append(row | {"image": str(png / f"{i}.png")})
    fine = {"image": F.Tensor(shape=(32, 32, 3), dtype=np.uint8), "label": F.ClassLabel(num_classes=100)}
    prepared(folder, "cifar100", fine | {"coarse_label": F.ClassLabel(num_classes=20), "id": F.Text()}, cifar())
    prepared(
        folder,
        "emnist",
        {"image": F.Image(shape=(28, 28, 1)), "label": F.ClassLabel(num_classes=62)},
        drawn,
        config="byclass",
    )
    prepared(folder, "tiny_shakespeare", {"text": F.Text()}, [{"text": PLAY}])
    kinds = {
        "x": F.Tensor(shape=(2, 3), dtype=np.float32),
        "words": F.Tensor(shape=(None,), dtype=np.int32),
        "who": F.Text(),
        "score": F.Scalar(np.float32),
        "kind": F.ClassLabel(num_classes=2),
    }
    prepared(folder, "mixed", kinds, mixed())
    return folder


def test_cifar100_comes_in_pachinko_clients(root):
    store = in_memory(tfds_source.clients("cifar100", data_dir=root, per_client=20))
    assert [store.id(i) for i in range(store.clients)] == [str(i) for i in range(20)]
    assert np.diff(store.offsets).tolist() == [20] * 20
    assert store.features["image"].dtype == np.uint8
    assert store.features["label"].dtype == store.features["coarse_label"].dtype == np.int32
    examples = [int(text[1:]) for text in store.features["id"].texts()]
    assert sorted(examples) == list(range(400))
    assert store.features["label"].tolist() == [i % 100 for i in examples]
    assert store.features["image"][:, 31, 0, 2].tolist() == [i % 256 for i in examples]
    assert in_memory(prepare.cifar100(store)).examples == 400


def test_cifar100_clients_have_a_hundred_examples_by_default(root):
    assert [id for id, _ in tfds_source.clients("cifar100", data_dir=root)] == ["0", "1", "2", "3"]
    assert [id for id, _ in tfds_source.clients("cifar100", data_dir=root, split="test")] == ["0", "1"]


def test_the_partition_is_determined_by_its_seed(root):
    def owners(seed):
        found = tfds_source.clients("cifar100", data_dir=root, per_client=20, seed=seed, features=["id"])
        return [examples["id"] for _, examples in found]

    assert owners(1) == owners(1)
    assert owners(1) != owners(2)


def test_emnist_is_turned_upright_and_inverted(root):
    store = in_memory(tfds_source.clients("emnist/byclass", data_dir=root, partition="iid", num_clients=4))
    assert (store.clients, store.examples) == (4, 30)
    assert store.features["pixels"].dtype == np.float32
    expected = {int(row["label"]): 1 - row["image"][..., 0].T / 255 for row in letters()}
    for pixels, label in zip(store.features["pixels"], store.features["label"].tolist(), strict=True):
        np.testing.assert_allclose(pixels, expected[label], atol=1e-6)
    assert in_memory(prepare.emnist(store)).examples == 30


def test_transposed_white_on_black_becomes_ink_on_paper():
    image = np.zeros((1, 28, 28, 1), np.uint8)
    image[0, 3, 20] = 255
    pixels = tfds_source.dark_on_light(image)
    assert pixels[0, 20, 3] == 0
    assert pixels.sum() == 28 * 28 - 1


def test_tiny_shakespeare_comes_by_role(root):
    assert list(tfds_source.clients("tiny_shakespeare", data_dir=root)) == [
        ("ROMEO", {"snippets": [b"But, soft! what light\nbreaks?", b"Ay me."]}),
        ("First Citizen", {"snippets": [b"Speak: speak.\na second paragraph."]}),
    ]


ROLE = st.sampled_from(["ROMEO", "First Citizen", "JULIET", "QUEEN MARGARET"])
SPEECH = st.lists(st.sampled_from(["Ay me!", "What light", "thus he said; no"]), min_size=1, max_size=3).map("\n".join)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(ROLE, SPEECH), min_size=1))
def test_speeches_go_back_to_their_roles(scenes):
    text = "\n\n".join(f"{role}:\n{speech}" for role, speech in scenes).encode()
    expected: dict[str, list[bytes]] = {}
    for role, speech in scenes:
        expected.setdefault(role, []).append(speech.encode())
    assert tfds_source.speeches_by_role(text) == expected
    assert tfds_source.speeches_by_role(text.replace(b"\n", b"\r\n") + b"\r\n") == expected


def test_any_dataset_can_be_partitioned_by_a_column(root):
    found = dict(tfds_source.clients("mixed", data_dir=root, partition="column", column="who"))
    assert sorted(found) == ["wérd0", "wérd1", "wérd2"]
    seen = []
    for id, examples in found.items():
        assert isinstance(examples["words"], Ragged)
        assert examples["words"].values.dtype == np.int32
        assert (examples["score"].dtype, examples["kind"].dtype) == (np.float32, np.int32)
        for k, x in enumerate(examples["x"]):
            i = int(x[0, 0])
            seen.append(i)
            assert (examples["score"][k], examples["kind"][k], examples["who"][k]) == (i / 2, i % 2, id.encode())
            assert examples["words"].row(k).tolist() == list(range(i, i + i % 4))
    assert sorted(seen) == list(range(23))
    assert in_memory(found.items()).examples == 23


def test_a_column_of_numbers(root):
    found = tfds_source.clients("mixed", data_dir=root, partition="column", column="kind", features=["x"])
    assert {id: len(examples["x"]) for id, examples in found} == {"0": 12, "1": 11}


def test_dirichlet_partitions_all_examples(root):
    options = {"data_dir": root, "partition": "dirichlet", "num_clients": 5, "alpha": 0.3, "features": ["id"]}
    store = in_memory(tfds_source.clients("cifar100", **options))
    assert store.clients <= 5
    assert sorted(store.features["id"].texts()) == [b"e%04d" % i for i in range(400)]


def test_a_folder_and_a_part_of_a_split(root):
    found = tfds_source.clients(root / "mixed" / "1.0.0", split="train[:10]", partition="iid", num_clients=3)
    assert [len(examples["x"]) for _, examples in found] == [4, 3, 3]


def test_images_that_are_not_needed_are_not_decoded(root, monkeypatch):
    def refuse(*_):
        raise AssertionError("an image was decoded")

    monkeypatch.setattr(tfds.features.Image, "decode_example_np", refuse)
    found = tfds_source.clients("emnist", data_dir=root, partition="dirichlet", num_clients=2, features=["label"])
    assert sum(len(examples["label"]) for _, examples in found) == 30


def test_the_newest_version_and_the_one_configuration(tmp_path):
    for place in ("a/1.9.0", "a/1.10.0", "b/one/1.0.0", "c/one/1.0.0", "c/two/1.0.0"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "dataset_info.json").touch()
    assert tfds_source.prepared_folder("a", tmp_path) == tmp_path / "a" / "1.10.0"
    assert tfds_source.prepared_folder("a:1.9.0", tmp_path) == tmp_path / "a" / "1.9.0"
    assert tfds_source.prepared_folder("b", tmp_path) == tmp_path / "b" / "one" / "1.0.0"
    assert tfds_source.prepared_folder("c/two", tmp_path) == tmp_path / "c" / "two" / "1.0.0"
    with pytest.raises(StoreError, match="found several; name one of c/one, c/two"):
        tfds_source.prepared_folder("c", tmp_path)


def test_a_dataset_that_is_not_prepared_is_never_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", lambda *_: pytest.fail("a download"))
    with pytest.raises(StoreError, match=r"expected the dataset 'cifar100' prepared.*file_format=\"array_record\""):
        tfds_source.clients("cifar100", data_dir=tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(StoreError, match="elsewhere"):
        tfds_source.clients("cifar100")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "partition must be one of pachinko, .* for mixed, got None"),
        ({"partition": "random"}, "got 'random'"),
        ({"partition": "iid"}, "num_clients must be given for the partition 'iid'"),
        ({"partition": "column"}, "column must be given"),
        ({"partition": "column", "column": "nobody"}, "expected the feature 'nobody', found .*score"),
        ({"partition": "column", "column": "x"}, "expected one value of x per example"),
        ({"partition": "pachinko"}, "expected the feature 'coarse_label'"),
        ({"partition": "pachinko", "per_client": 0}, "per_client must be >= 1, got 0"),
        ({"partition": "role", "column": "x"}, "expected the text x"),
        ({"partition": "role", "column": "who"}, "expected roles that speak"),
        ({"partition": "iid", "num_clients": 2, "split": "nope"}, "split 'nope'"),
        ({"partition": "iid", "num_clients": 2, "features": ["y"]}, "expected the feature 'y'"),
    ],
)
def test_invalid_arguments_are_refused(root, options, message):
    with pytest.raises(ValueError, match=message):
        tfds_source.clients("mixed", data_dir=root, **options)


def test_a_feature_that_no_store_can_hold_is_refused(tmp_path):
    F = tfds.features
    shape = {"deep": F.Tensor(shape=(None, None), dtype=np.int32, encoding="zlib"), "y": F.Scalar(np.int32)}
    prepared(tmp_path, "nested", shape, [{"deep": np.zeros((i + 1, 2), np.int32), "y": i} for i in range(4)])
    options = {"data_dir": tmp_path, "partition": "iid", "num_clients": 2}
    with pytest.raises(StoreError, match=r"found deep .* choose other `features`"):
        tfds_source.clients("nested", **options)
    assert in_memory(tfds_source.clients("nested", **options, features=["y"])).examples == 4


def test_a_damaged_description_is_refused(root, tmp_path):
    copy = tmp_path / "1.0.0"
    shutil.copytree(root / "mixed" / "1.0.0", copy)
    for file, content in (("features.json", "{"), ("dataset_info.json", "{")):
        (copy / file).write_text(content)
        with pytest.raises(StoreError, match=re.escape(str(copy))):
            tfds_source.clients(copy, partition="iid", num_clients=1)


def test_a_thousand_damaged_files(root, tmp_path):
    """Damage is either detected, or it is outside the records and the clients are the same."""
    copy = tmp_path / "1.0.0"
    shutil.copytree(root / "mixed" / "1.0.0", copy)
    (file,) = copy.glob("*train*")
    sound, rng = np.frombuffer(file.read_bytes(), np.uint8), np.random.default_rng(0)
    used = np.flatnonzero(sound)

    def read():
        return [(id, examples["x"].tolist(), [*examples["who"]]) for id, examples in clients()]

    def clients():
        return tfds_source.clients(copy, partition="iid", num_clients=2, features=["x", "who"])

    expected, noticed = read(), []
    for _ in range(1000):
        damaged = sound.copy()
        match rng.integers(3):
            case 0:
                damaged[rng.choice(used, 3)] ^= np.uint8(1 << rng.integers(8))
            case 1:
                damaged = damaged[: rng.integers(len(damaged))]
            case 2:
                at = int(rng.choice(used))
                damaged[at : at + 20] = rng.integers(0, 256, len(damaged[at : at + 20]), np.uint8)
        file.write_bytes(damaged.tobytes())
        try:
            assert read() == expected
        except StoreError as error:
            noticed.append(str(error))
    assert len(noticed) > 900
    assert all(str(copy) in message for message in noticed)


def test_a_format_without_random_access_is_refused(root, tmp_path):
    copy = tmp_path / "1.0.0"
    shutil.copytree(root / "mixed" / "1.0.0", copy)
    info = (copy / "dataset_info.json").read_text()
    (copy / "dataset_info.json").write_text(info.replace("array_record", "tfrecord"))
    with pytest.raises(StoreError, match=r"random access, found tfrecord; .*file_format=\"array_record\""):
        tfds_source.clients(copy, partition="iid", num_clients=1)


def test_without_tensorflow_datasets_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"needs tensorflow-datasets: pip install .lur-jax\[data\]"):
        tfds_source.clients("cifar100")
