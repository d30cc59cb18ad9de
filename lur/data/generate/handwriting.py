"""Handwriting, a stand-in for FEMNIST: 62 characters, written in a different style by each writer.

The strokes are skeletons of the fonts that come with matplotlib, as distance fields: a pen of any width and pressure is
a threshold on the distance, and a slant, a warp or a shift moves the points at which the field is evaluated. A writer
has a font, a slant, a rotation, an aspect, a size, an offset, a pen width, a pressure and, for each character, a warp;
each sample adds jitter.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lur._extras import optional_imports
from lur.data.generate.seeds import Features, check_arguments, generator_for, lognormal_size, mixture_weights

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
"""The fonts of the letter forms; at heterogeneity 0 every writer has the first one."""

SIDE = 28
CANVAS = 80  # the side of a distance field, in pixels
EM = 64  # the font size on it
SCALE = 0.42  # image pixels per pixel of a distance field: a capital is about 19 of 28 pixels tall


class Style(NamedTuple):
    """The style of a writer, or with a leading axis the styles of several samples.

    Attributes:
      slant: the horizontal shear.
      rotation: the angle, in radians.
      aspect: the factor of the width.
      size: the factor of the size.
      offset: the shift of the character, (..., 2), in pixels.
      width: half the width of the stroke, in pixels.
      pressure: the darkness of the ink, in [0, 1].
      warp: the coefficients of `warp_basis` in both directions, (..., 2, 8), in pixels.
    """

    slant: np.ndarray
    rotation: np.ndarray
    aspect: np.ndarray
    size: np.ndarray
    offset: np.ndarray
    width: np.ndarray
    pressure: np.ndarray
    warp: np.ndarray


def skeletons(ink: np.ndarray) -> np.ndarray:
    """Return the skeletons of a stack of binary images, by the parallel thinning of Zhang and Suen."""
    ink = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    around = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))  # clockwise from the north
    while True:
        before = ink.sum()
        for first in (True, False):
            p = [np.roll(ink, (-dy, -dx), (1, 2)) for dy, dx in around]
            neighbours = sum(q.astype(np.int8) for q in p)
            transitions = sum((~p[k] & p[(k + 1) % 8]).astype(np.int8) for k in range(8))
            north, east, south, west = p[0], p[2], p[4], p[6]
            kept = (east & south & (north | west)) if first else (north & west & (east | south))
            ink = ink & ~((neighbours >= 2) & (neighbours <= 6) & (transitions == 1) & ~kept)
        if ink.sum() == before:
            return ink[:, 1:-1, 1:-1]


@lru_cache(maxsize=len(FONTS))
def distance_fields(font: str) -> np.ndarray:
    """Return the distance to the skeleton of each character, centred, in canvas pixels: (62, CANVAS, CANVAS)."""
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
    return np.stack([np.asarray(distance_transform_edt(~skeleton), np.float32) for skeleton in skeletons(ink)])


@lru_cache(maxsize=1)
def warp_basis() -> np.ndarray:
    """Return the basis of smooth warps on the pixel grid: products of cosines, damped with frequency, (8, 784)."""
    t = (np.arange(SIDE) + 0.5) / SIDE
    cosines = [np.cos(np.pi * k * t) for k in range(3)]
    basis = [np.outer(cosines[i], cosines[j]).ravel() / (i + j) for i in range(3) for j in range(3) if i + j > 0]
    return np.stack(basis).astype(np.float32)


def random_style(rng: np.random.Generator, heterogeneity: float) -> tuple[str, Style]:
    """Return a writer's font and style: the same for all writers at heterogeneity 0, and more different as it grows."""
    z = np.clip(rng.standard_normal(10), -2, 2) * heterogeneity
    u, index = rng.random(), rng.integers(len(FONTS))
    font = FONTS[index] if u < heterogeneity else FONTS[0]
    return font, Style(
        slant=0.12 + np.clip(0.2 * z[0], -0.8, 0.8),
        rotation=np.clip(0.09 * z[1], -0.5, 0.5),
        aspect=np.exp(np.clip(0.13 * z[2], -0.5, 0.5)),
        size=np.exp(np.clip(0.1 * z[3], -0.4, 0.25)),
        offset=np.clip(0.8 * z[4:6], -3.5, 3.5),
        width=0.95 * np.exp(np.clip(0.28 * z[6], -0.5, 0.8)),
        pressure=1 - np.clip(0.1 * np.abs(z[7]), 0, 0.4),
        warp=0.8 * min(heterogeneity, 3.0) * rng.standard_normal((len(CHARACTERS), 2, len(warp_basis()))),
    )


def jittered(rng: np.random.Generator, style: Style, label: np.ndarray) -> Style:
    """Return the style of each sample: the writer's with jitter."""
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
        warp=style.warp[label] + 0.35 * rng.standard_normal((n, 2, len(warp_basis()))),
    )


def render(font: str, label: np.ndarray, style: Style) -> np.ndarray:
    """Return images of the characters `label`, each in its style: ink 0 on background 1, (n, 28, 28)."""
    n = len(label)
    y, x = np.mgrid[:SIDE, :SIDE].reshape(2, -1).astype(np.float32) - (SIDE - 1) / 2
    warp = np.einsum("ndw,wp->dnp", style.warp.astype(np.float32), warp_basis())
    x = x - style.offset[:, :1].astype(np.float32) + warp[0]
    y = y - style.offset[:, 1:].astype(np.float32) + warp[1]
    cos, sin = np.cos(style.rotation), np.sin(style.rotation)
    inverse = np.array([[cos + style.slant * -sin, sin + style.slant * cos], [-sin, cos]])  # unrotate, then unslant
    inverse[0] /= style.aspect
    inverse = (inverse / (style.size * SCALE)).astype(np.float32)[..., None]
    centre = (CANVAS - 1) / 2
    u = np.clip(inverse[0, 0] * x + inverse[0, 1] * y + centre, 0, CANVAS - 1.001)
    v = np.clip(inverse[1, 0] * x + inverse[1, 1] * y + centre, 0, CANVAS - 1.001)
    left, top = u.astype(np.int32), v.astype(np.int32)
    u, v = u - left, v - top
    field = distance_fields(font).ravel()
    corner = label.astype(np.int32)[:, None] * CANVAS**2 + top * CANVAS + left
    upper = field[corner] * (1 - u) + field[corner + 1] * u
    lower = field[corner + CANVAS] * (1 - u) + field[corner + CANVAS + 1] * u
    distance = (upper * (1 - v) + lower * v) * (style.size * SCALE).astype(np.float32)[:, None]
    width = style.width[:, None] + 0.06 * warp[0]  # the width of the pen varies with the warp
    ink = style.pressure[:, None] * np.clip(width - distance + 0.5, 0, 1)
    return (1 - ink).astype(np.float32).reshape(n, SIDE, SIDE)


def writer(index: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None) -> Features:
    """Return the samples of one writer."""
    sizes, mix, styles, samples = generator_for("handwriting", seed, index).spawn(4)
    n = examples or lognormal_size(sizes, median=180, spread=0.45, low=30, high=418)
    p = mixture_weights(mix, len(CHARACTERS), 2.0, heterogeneity)
    label = samples.choice(len(CHARACTERS), size=n, p=p)
    font, style = random_style(styles, heterogeneity)
    return {"pixels": render(font, label, jittered(samples, style, label)), "label": label.astype(np.int32)}


def clients(
    num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0, examples: int | None = None
) -> Iterator[tuple[str, Features]]:
    """Return writers with ``pixels`` (n, 28, 28), float32 in [0, 1], and ``label`` (n,), int32, an index of CHARACTERS.

    Args:
      num_clients: the number of writers. The first writers do not depend on it.
      seed: the seed of the writers.
      heterogeneity: 0 for one style and uniform classes, 1 for styles as different as people's, 2 for more different
        ones. Styles spread in proportion to it; the classes of a writer are Dirichlet(2 / heterogeneity).
      examples: the number of samples per writer; by default it is lognormal with median 180, between 30 and 418.
    """
    check_arguments(num_clients, seed, heterogeneity, examples=examples)
    options = {"seed": seed, "heterogeneity": heterogeneity, "examples": examples}
    return ((f"writer{i:06d}", writer(i, **options)) for i in range(num_clients))
