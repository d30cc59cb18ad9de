"""Handwriting, a stand-in for FEMNIST: 62 characters by writers with hands of their own.

The strokes are the skeletons of the fonts that come with matplotlib, kept as distance fields: a pen of any
width and pressure is a threshold of the distance, and a slant, a warp or a shift moves the points at which
the field is looked up. A writer has a font, a slant, a rotation, an aspect, a size, a place in the box, a
pen, a pressure and, for each character, a warp of their own; each sample adds a little jitter.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lur._extras import optional_imports
from lur.data.generate.seeds import Features, check, heavy_tailed, mixture, stream

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The classes, in FEMNIST's order."""

FONTS = (
    "DejaVuSans",
    "cmss10",
    "cmmi10",
    "STIXGeneralItalic",
    "DejaVuSansMono-Oblique",
    "cmti10",
    "DejaVuSans-Oblique",
    "cmtt10",
    "DejaVuSansMono",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "cmr10",
)
"""Where the letter forms come from; the first is everybody's at heterogeneity 0."""

SIDE = 28
CANVAS = 80  # pixels of a distance field's side
EM = 64  # the size of its letters
SCALE = 0.42  # pixels of an image per pixel of a distance field: a capital is some 19 of 28 tall


class Style(NamedTuple):
    """A hand: numbers of a writer, or arrays with one of them per sample."""

    slant: np.ndarray
    rotation: np.ndarray
    aspect: np.ndarray
    size: np.ndarray
    offset: np.ndarray  # (..., 2), pixels
    width: np.ndarray  # half the stroke's, pixels
    pressure: np.ndarray
    warp: np.ndarray  # (..., 2, waves), pixels


def thinned(ink: np.ndarray) -> np.ndarray:
    """Skeletons of a stack of binary images: Zhang and Suen's parallel thinning, all images at once."""
    ink = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    around = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))  # clockwise from the north
    while True:
        before = ink.sum()
        for first in (True, False):
            p = [np.roll(ink, (-dy, -dx), (1, 2)) for dy, dx in around]
            neighbours = sum(q.astype(np.int8) for q in p)
            turns = sum((~p[k] & p[(k + 1) % 8]).astype(np.int8) for k in range(8))
            north, east, south, west = p[0], p[2], p[4], p[6]
            spared = (east & south & (north | west)) if first else (north & west & (east | south))
            ink = ink & ~((neighbours >= 2) & (neighbours <= 6) & (turns == 1) & ~spared)
        if ink.sum() == before:
            return ink[:, 1:-1, 1:-1]


@lru_cache(maxsize=len(FONTS))
def strokes(font: str) -> np.ndarray:
    """Per character the distance to its skeleton, in canvas pixels: (62, CANVAS, CANVAS), centred."""
    with optional_imports("the built-in data of femnist"):
        import matplotlib
        from matplotlib.ft2font import FT2Font
    from scipy.ndimage import distance_transform_edt

    face = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"))
    face.set_size(EM, 72)
    ink = np.zeros((len(CHARACTERS), CANVAS, CANVAS), bool)
    for glyph, character in zip(ink, CHARACTERS, strict=True):
        face.set_text(character, 0.0)
        face.draw_glyphs_to_bitmap(antialiased=True)
        image = np.asarray(face.get_image()) > 110
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        image = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        top, left = (CANVAS - image.shape[0]) // 2, (CANVAS - image.shape[1]) // 2
        glyph[top : top + image.shape[0], left : left + image.shape[1]] = image
    return np.stack([np.asarray(distance_transform_edt(~skeleton), np.float32) for skeleton in thinned(ink)])


@lru_cache(maxsize=1)
def waves() -> np.ndarray:
    """The smooth warps' basis on the pixel grid: products of cosines, the shorter the weaker, (8, 784)."""
    t = (np.arange(SIDE) + 0.5) / SIDE
    cosines = [np.cos(np.pi * k * t) for k in range(3)]
    basis = [np.outer(cosines[i], cosines[j]).ravel() / (i + j) for i in range(3) for j in range(3) if i + j > 0]
    return np.stack(basis).astype(np.float32)


def hand(rng: np.random.Generator, heterogeneity: float) -> tuple[str, Style]:
    """A writer's font and style: everybody's at heterogeneity 0, further from it as the dial goes up."""
    z = np.clip(rng.standard_normal(10), -2, 2) * heterogeneity
    own, which = rng.random(), rng.integers(len(FONTS))
    font = FONTS[which] if own < heterogeneity else FONTS[0]
    return font, Style(
        slant=0.12 + np.clip(0.2 * z[0], -0.8, 0.8),
        rotation=np.clip(0.09 * z[1], -0.5, 0.5),
        aspect=np.exp(np.clip(0.13 * z[2], -0.5, 0.5)),
        size=np.exp(np.clip(0.1 * z[3], -0.4, 0.25)),
        offset=np.clip(0.8 * z[4:6], -3.5, 3.5),
        width=0.95 * np.exp(np.clip(0.28 * z[6], -0.5, 0.8)),
        pressure=1 - np.clip(0.1 * np.abs(z[7]), 0, 0.4),
        warp=0.8 * min(heterogeneity, 3.0) * rng.standard_normal((len(CHARACTERS), 2, len(waves()))),
    )


def jittered(rng: np.random.Generator, style: Style, label: np.ndarray) -> Style:
    """The style of each sample: no two letters of one hand are quite the same."""
    n = len(label)
    z = rng.standard_normal((n, 8))
    return Style(
        slant=style.slant + 0.05 * z[:, 0],
        rotation=style.rotation + 0.05 * z[:, 1],
        aspect=style.aspect * np.exp(0.05 * z[:, 2]),
        size=style.size * np.exp(0.04 * z[:, 3]),
        offset=style.offset + 0.45 * z[:, 4:6],
        width=style.width * np.exp(0.08 * z[:, 6]),
        pressure=np.clip(style.pressure - 0.05 * np.abs(z[:, 7]), 0.4, 1.0),
        warp=style.warp[label] + 0.35 * rng.standard_normal((n, 2, len(waves()))),
    )


def written(font: str, label: np.ndarray, style: Style) -> np.ndarray:
    """Images of the characters `label`, one style each: ink 0 on background 1, (n, 28, 28)."""
    n = len(label)
    y, x = np.mgrid[:SIDE, :SIDE].reshape(2, -1).astype(np.float32) - (SIDE - 1) / 2
    moved = np.einsum("ndw,wp->dnp", style.warp.astype(np.float32), waves())
    x = x - style.offset[:, :1].astype(np.float32) + moved[0]
    y = y - style.offset[:, 1:].astype(np.float32) + moved[1]
    cos, sin = np.cos(style.rotation), np.sin(style.rotation)
    back = np.array([[cos + style.slant * -sin, sin + style.slant * cos], [-sin, cos]])  # unrotate, then unslant
    back[0] /= style.aspect
    back = (back / (style.size * SCALE)).astype(np.float32)[..., None]
    middle = (CANVAS - 1) / 2
    u = np.clip(back[0, 0] * x + back[0, 1] * y + middle, 0, CANVAS - 1.001)
    v = np.clip(back[1, 0] * x + back[1, 1] * y + middle, 0, CANVAS - 1.001)
    left, top = u.astype(np.int32), v.astype(np.int32)
    u, v = u - left, v - top
    field = strokes(font).ravel()
    corner = label.astype(np.int32)[:, None] * CANVAS**2 + top * CANVAS + left
    upper = field[corner] * (1 - u) + field[corner + 1] * u
    lower = field[corner + CANVAS] * (1 - u) + field[corner + CANVAS + 1] * u
    distance = (upper * (1 - v) + lower * v) * (style.size * SCALE).astype(np.float32)[:, None]
    uneven = style.width[:, None] + 0.06 * moved[0]  # the pen's width drifts along with the warp
    ink = style.pressure[:, None] * np.clip(uneven - distance + 0.5, 0, 1)
    return (1 - ink).astype(np.float32).reshape(n, SIDE, SIDE)


def writer(index: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None) -> Features:
    """The samples of one writer."""
    sizes, mix, style, samples = stream("handwriting", seed, index).spawn(4)
    n = examples or heavy_tailed(sizes, median=180, spread=0.45, least=30, most=418)
    p = mixture(mix, len(CHARACTERS), 2.0, heterogeneity)
    label = samples.choice(len(CHARACTERS), size=n, p=p)
    font, own = hand(style, heterogeneity)
    return {"pixels": written(font, label, jittered(samples, own, label)), "label": label.astype(np.int32)}


def clients(
    num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None
) -> Iterator[tuple[str, Features]]:
    """Writers, each with ``pixels`` (n, 28, 28), float32 in [0, 1], and ``label`` (n,), int32, an index of CHARACTERS.

    Args:
      num_clients: how many writers. The first ones are the same however many there are.
      seed: of everything random.
      heterogeneity: 0 for one hand and uniform classes, 1 for hands as different as people's, 2 for more than
        that. Styles spread in proportion to it; classes are Dirichlet(2 / heterogeneity) per writer.
      examples: samples per writer; by default lognormal, between 30 and 418 with median 180.
    """
    check(num_clients, seed, heterogeneity, examples=examples)
    options = {"seed": seed, "heterogeneity": heterogeneity, "examples": examples}
    return ((f"writer{i:06d}", writer(i, **options)) for i in range(num_clients))
