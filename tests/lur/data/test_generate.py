"""Generated datasets: features, determinism, heterogeneity, and structure that a model can learn."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest

from lur.data.generate import dialect, handwriting, images, posts, vocabulary

MODULES = (handwriting, images, dialect, posts)
STREAMS = (handwriting, dialect, posts)  # those whose clients do not share a pool


def features(module, num_clients, **options):
    return [client for _, client in module.clients(num_clients, **options)]


def equal_features(a, b):
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name]) if isinstance(a[name], np.ndarray) else a[name] == b[name] for name in a
    )


def distance(histograms):
    """Mean total variation between a client's histogram and everybody's."""
    p = histograms / histograms.sum(1, keepdims=True)
    return 0.5 * np.abs(p - p.mean(0)).sum(1).mean()


def conditional_entropy(text, order):
    """Bits per symbol given the `order` symbols before, as counted."""

    def entropy(k):
        counts = np.array([*Counter(tuple(text[i : i + k]) for i in range(len(text) - order)).values()])
        p = counts / counts.sum()
        return -(p * np.log2(p)).sum()

    return entropy(order + 1) - (entropy(order) if order else 0.0)


@pytest.mark.parametrize("module", MODULES)
def test_clients_are_deterministic(module):
    one, two, other = (list(module.clients(3, seed=seed)) for seed in (5, 5, 6))
    assert [name for name, _ in one] == [name for name, _ in two]
    assert len({name for name, _ in one}) == 3
    assert all(equal_features(a, b) for (_, a), (_, b) in zip(one, two, strict=True))
    assert not any(equal_features(a, b) for (_, a), (_, b) in zip(one, other, strict=True))


@pytest.mark.parametrize("module", STREAMS)
def test_the_first_clients_do_not_depend_on_the_number_of_clients(module):
    few, many = features(module, 2), list(islice(module.clients(10**6), 2))
    assert all(equal_features(a, b) for a, (_, b) in zip(few, many, strict=True))


@pytest.mark.parametrize("module", MODULES)
def test_ids_sort_in_order_and_features_agree_on_length(module):
    clients = list(module.clients(12))
    names = [name for name, _ in clients]
    assert names == sorted(names)
    for _, client in clients:
        assert len({len(values) for values in client.values()}) == 1


@pytest.mark.parametrize("module", STREAMS)
def test_number_of_examples_can_be_set(module):
    assert {len(next(iter(client.values()))) for client in features(module, 3, examples=7)} == {7}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("heterogeneity", [1e-12, 0.3, 50.0])
def test_any_heterogeneity_works(module, heterogeneity):
    assert len(features(module, 2, heterogeneity=heterogeneity)) == 2


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("num_clients", "options", "message"),
    [
        (0, {}, "num_clients must be an integer >= 1, got 0"),
        (1.5, {}, "num_clients must be an integer >= 1, got 1.5"),
        (1, {"seed": -1}, "seed must be an integer >= 0, got -1"),
        (1, {"seed": 0.5}, "seed must be an integer >= 0, got 0.5"),
        (1, {"heterogeneity": -0.1}, "heterogeneity must be a finite number >= 0, got -0.1"),
        (1, {"heterogeneity": float("nan")}, "heterogeneity must be a finite number >= 0, got nan"),
        (1, {"heterogeneity": "1"}, "heterogeneity must be a finite number >= 0, got '1'"),
    ],
)
def test_invalid_arguments_are_refused_before_the_first_client(module, num_clients, options, message):
    with pytest.raises(ValueError, match=message):
        module.clients(num_clients, **options)


@pytest.mark.parametrize("module", STREAMS)
def test_an_invalid_number_of_examples_is_refused(module):
    with pytest.raises(ValueError, match="examples must be an integer >= 1, got 0"):
        module.clients(1, examples=0)


class TestHandwriting:
    def test_features(self):
        for client in features(handwriting, 4):
            n = len(client["label"])
            assert 30 <= n <= 418
            assert client["pixels"].shape == (n, 28, 28)
            assert (client["pixels"].dtype, client["label"].dtype) == (np.float32, np.int32)
            assert client["pixels"].min() >= 0
            assert client["pixels"].max() == 1
            assert set(client["label"].tolist()) <= set(range(62))

    def test_classes_are_those_of_femnist(self):
        assert len(handwriting.CHARACTERS) == 62
        assert [handwriting.CHARACTERS[k] for k in (0, 9, 10, 35, 36, 61)] == ["0", "9", "A", "Z", "a", "z"]

    def test_ink_is_dark_on_a_light_ground(self):
        pixels = np.concatenate([client["pixels"] for client in features(handwriting, 8)])
        assert 0.75 < pixels.mean() < 0.95
        assert (pixels.min((1, 2)) < 0.7).all()  # nothing is blank
        assert pixels[:, [0, -1]].mean() > 0.97

    def test_glyphs_are_thin_and_whole(self):
        """A skeleton has few pixels with four neighbours or more, and the two dotted letters have two pieces."""
        from scipy.ndimage import label

        lines = handwriting.distance_fields("DejaVuSans") == 0
        pieces = {c: label(line, np.ones((3, 3)))[1] for c, line in zip(handwriting.CHARACTERS, lines, strict=True)}
        assert {c for c, count in pieces.items() if count != 1} == {"i", "j"}
        assert 20 < lines.sum((1, 2)).mean() < 200

    def test_heterogeneity_changes_classes_and_styles(self):
        mixes, styles = [], []
        for h in (0.0, 1.0, 2.0):
            clients = features(handwriting, 20, heterogeneity=h, examples=250)
            mixes.append(distance(np.stack([np.bincount(client["label"], minlength=62) for client in clients])))
            styles.append(np.std([client["pixels"].mean() for client in clients]))
        noise = np.random.default_rng(0).multinomial(250, np.full(62, 1 / 62), size=20)
        assert abs(mixes[0] - distance(noise)) < 0.02
        assert mixes[0] + 0.05 < mixes[1] < mixes[2] - 0.05
        assert 4 * styles[0] < styles[1] < styles[2]

    def test_samples_of_one_writer_are_closer_than_those_of_two(self):
        """At heterogeneity 1 the nearest sample of the same character is usually by the same writer."""
        clients = features(handwriting, 6, examples=400)
        same_writer = []
        for character in range(10):
            drawn = [client["pixels"][client["label"] == character] for client in clients]
            writer = np.repeat(np.arange(6), [len(d) for d in drawn])
            flat = np.concatenate(drawn).reshape(len(writer), -1)
            gaps = ((flat[:, None] - flat) ** 2).sum(-1) + np.diag(np.full(len(flat), np.inf))
            same_writer.append((writer[gaps.argmin(1)] == writer).mean())
        assert np.mean(same_writer) > 0.7


class TestImages:
    def test_features(self):
        clients = features(images, 10)
        for client in clients:
            assert client["image"].shape == (100, 32, 32, 3)
            assert client["image"].dtype == np.uint8
            assert client["label"].dtype == client["coarse_label"].dtype == np.int32
            assert np.array_equal(client["label"] // 5, client["coarse_label"])
        counts = np.bincount(np.concatenate([client["label"] for client in clients]))
        assert counts.tolist() == [10] * 100

    def test_images_of_the_pool_depend_on_their_number_alone(self):
        together, alone = images.pool(np.arange(200, 210)), images.pool(np.array([207]))
        assert np.array_equal(together["image"][7], alone["image"][0])
        assert len({image.tobytes() for image in images.pool(np.arange(0, 500, 100))["image"]}) == 5

    def test_heterogeneity_does_not_change_the_pool(self):
        """The union of the clients is the same set of images at every heterogeneity."""
        pools = [np.sort(np.concatenate(images.allocation(5, heterogeneity=h))) for h in (0.0, 1.0, 3.0)]
        assert all(np.array_equal(pool, np.arange(500)) for pool in pools)

    def test_heterogeneity_changes_coarse_labels(self):
        def spread(h):
            shares = images.allocation(40, heterogeneity=h)
            return distance(np.stack([np.bincount(share % 100 // 5, minlength=20) for share in shares]))

        iid, some, paper, strong = (spread(h) for h in (0.0, 0.02, 1.0, 4.0))
        noise = np.random.default_rng(0).multinomial(100, np.full(20, 1 / 20), size=40)
        assert abs(iid - distance(noise)) < 0.03
        assert iid < some < paper < strong

    def test_families_differ_in_their_patterns(self):
        """Two grey images of a family have closer spectra than two of different families."""
        drawn = images.pool(np.arange(1600))
        grey = drawn["image"].mean(-1)
        grey = (grey - grey.mean((1, 2), keepdims=True)) / grey.std((1, 2), keepdims=True)
        spectrum = np.log1p(np.abs(np.fft.rfft2(grey))).reshape(len(grey), -1)
        centres = np.stack([spectrum[:1000][drawn["coarse_label"][:1000] == c].mean(0) for c in range(20)])
        nearest = ((spectrum[1000:, None] - centres) ** 2).sum(-1).argmin(1)
        assert (nearest == drawn["coarse_label"][1000:]).mean() > 4 / 20


@pytest.fixture(scope="module")
def roles():
    return features(dialect, 60)


class TestDialect:
    def test_characters_are_the_86(self, roles):
        assert len(dialect.CHARACTERS) == len(set(dialect.CHARACTERS)) == 86
        known = set(dialect.CHARACTERS.encode())
        for client in roles:
            assert all(
                isinstance(snippet, bytes) and snippet and set(snippet) <= known for snippet in client["snippets"]
            )

    def test_sizes_are_heavy_tailed(self):
        sizes = [len(dialect.role(i)["snippets"]) for i in range(100)]
        assert 12 < np.mean(sizes) < 32
        assert np.median(sizes) < np.mean(sizes) / 1.5
        assert min(sizes) >= 2

    def test_snippets_have_several_hundred_characters(self, roles):
        lengths = [len(snippet) for client in roles for snippet in client["snippets"]]
        assert 100 < np.mean(lengths) < 400
        assert max(lengths) < 1500

    def test_the_next_character_depends_on_its_context(self, roles):
        text = b"\n".join(snippet for client in roles for snippet in client["snippets"])[:200_000]
        unigram, bigram, trigram = (conditional_entropy(text, order) for order in (0, 1, 2))
        assert 4 < unigram < 5
        assert bigram < unigram - 0.8
        assert trigram < unigram - 1.6

    def test_heterogeneity_changes_vocabularies(self):
        def spread(h):
            said = [
                Counter(b" ".join(client["snippets"]).lower().replace(b",", b"").split())
                for client in features(dialect, 12, heterogeneity=h, examples=60)
            ]
            common = [word for word, _ in sum(said, Counter()).most_common(60)]
            return distance(np.array([[counts[word] for word in common] for counts in said], float))

        alike, default, broad = (spread(h) for h in (0.0, 1.0, 2.0))
        assert alike < 0.12
        assert 2 * alike < default < broad


@pytest.fixture(scope="module")
def users():
    return features(posts, 60)


class TestPosts:
    def test_features(self, users):
        for client in users:
            assert list(client) == ["creation_date", "score", "tags", "title", "tokens", "type"]
            assert client["score"].dtype == np.int64
            assert 100 <= len(client["tokens"]) <= 1000
            for name in ("creation_date", "tags", "title", "tokens", "type"):
                assert all(isinstance(value, bytes) and value for value in client[name])
            assert set(client["type"]) <= {b"question", b"answer"}
            for tags in client["tags"]:
                listed = tags.split(b"|")
                assert 1 <= len(listed) == len(set(listed)) <= 5
            assert all(date.endswith(b" UTC") and len(date) == 27 for date in client["creation_date"])

    def test_vocabulary_is_larger_than_ten_thousand(self, users):
        shared = posts.language(0)
        assert len(set(shared.words)) == posts.WORDS == 12_000
        assert len(set(shared.tags)) == posts.TAGS == 600
        used = {word for client in users for text in client["tokens"] for word in text.split(b" ")}
        assert len(used) > 10_000
        assert used <= set(shared.words)

    def test_words_follow_zipf(self, users):
        counts = Counter(word for client in users for text in client["tokens"] for word in text.split())
        frequency = np.sort([*counts.values()])[::-1]
        rank = np.arange(1, len(frequency) + 1)
        slope = np.polyfit(np.log(rank[9:2000]), np.log(frequency[9:2000]), 1)[0]
        assert -1.3 < slope < -0.8

    def test_the_next_word_depends_on_the_previous_one(self, users):
        """The most frequent successor, counted on some users, is right more often than the most frequent word."""
        texts = [text.split() for client in users for text in client["tokens"]]
        half = len(texts) // 2
        after: dict[bytes, Counter] = {}
        for text in texts[:half]:
            for a, b in pairwise(text):
                after.setdefault(a, Counter())[b] += 1
        overall = Counter(word for text in texts[:half] for word in text).most_common(1)[0][0]
        best = {word: following.most_common(1)[0][0] for word, following in after.items()}
        pairs = [(a, b) for text in texts[half:] for a, b in pairwise(text)]
        bigram = np.mean([best.get(a, overall) == b for a, b in pairs])
        assert bigram > 2 * np.mean([overall == b for _, b in pairs])
        assert bigram > 0.07

    def test_words_depend_on_tags(self, users):
        """A tag's name is far more frequent under the tag than elsewhere."""
        under, elsewhere = [], []
        tags = set(posts.language(0).tags)
        for client in users[:20]:
            for listed, text in zip(client["tags"], client["tokens"], strict=True):
                named = [word for word in text.split() if word in tags]
                under.append(sum(word in listed.split(b"|") for word in named))
                elsewhere.append(len(named) - under[-1])
        assert sum(under) > sum(elsewhere)

    def test_heterogeneity_changes_tags(self):
        tags = posts.language(0).tags.tolist()

        def spread(h):
            histograms = []
            for client in features(posts, 12, heterogeneity=h, examples=300):
                titled = dict(
                    zip(client["title"], client["tags"], strict=True)
                )  # each post once, not once per sentence
                counts = Counter(b"|".join(titled.values()).split(b"|"))
                by_tag = np.array([counts[tag] for tag in tags], float)
                histograms.append(by_tag.reshape(posts.TOPICS, -1).sum(1))
            return distance(np.stack(histograms))

        alike, default, narrow = (spread(h) for h in (0.0, 1.0, 4.0))
        assert alike < 0.35
        assert alike + 0.15 < default < narrow - 0.05


def test_invented_words_are_different_and_lowercase():
    found = vocabulary.invented_words(np.random.default_rng(0), 5000)
    assert len(set(found)) == 5000
    assert all(word.isascii() and word.isalpha() and word.islower() and len(word) > 1 for word in found)
