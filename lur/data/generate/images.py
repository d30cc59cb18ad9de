"""Small colour images, a stand-in for CIFAR-100: 20 families of textures and shapes (the coarse labels), five of each.

Every family is a formula for a pattern on the plane, and its five members are five settings of it: sides of a
polygon, arms of a spiral, pitch of a weave. A family has a colour scheme and a member shifts it, both loosely;
place, angle, size, colours, light and noise vary from image to image. The clients' shares are a Pachinko
allocation, as for the paper's CIFAR-100.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lur.data import partition
from lur.data.generate.seeds import Features, check, stream

SIDE = 32
FINE = 5
PER_CLIENT = 100


class Plane(NamedTuple):
    """Where patterns are evaluated: coordinates (n, 32, 32) with the image in about [-1, 1], and what is random."""

    x: np.ndarray
    y: np.ndarray
    r: np.ndarray
    angle: np.ndarray
    rough: np.ndarray  # smooth noise of the image, about unit variance
    dice: np.ndarray  # (n, 4, 1, 1) uniform numbers


def edge(distance: np.ndarray, softness: float | np.ndarray = 0.06) -> np.ndarray:
    """1 inside (distance > 0), 0 outside, and a ramp about as wide as a pixel between."""
    return np.clip(0.5 + distance / (2 * softness), 0, 1)


def stripes(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((5 + 4 * k) * at.x) - 0.3, 0.4)


def checks(at: Plane, k: np.ndarray) -> np.ndarray:
    pitch = 3.5 + 2.2 * k
    return edge(np.sin(pitch * at.x) * np.sin(pitch * at.y), 0.2)


def rings(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((7 + 4.5 * k) * at.r), 0.4)


def spiral(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((k + 1) * at.angle + 7 * at.r), 0.4)


def dots(at: Plane, k: np.ndarray) -> np.ndarray:
    pitch = 5 + 2 * (k % 3)
    return edge(np.cos(pitch * at.x) + np.cos(pitch * at.y) - np.where(k < 3, 0.9, -0.4), 0.4)


def polygon(at: Plane, k: np.ndarray) -> np.ndarray:
    sides = np.where(k == 4, 8, k + 3)
    sector = 2 * np.pi / sides
    return edge(0.62 - at.r * np.cos((at.angle % sector) - sector / 2))


def star(at: Plane, k: np.ndarray) -> np.ndarray:
    points = np.where(k == 4, 9, k + 3)
    sector = 2 * np.pi / points
    tip = np.abs((at.angle % sector) - sector / 2) / (sector / 2)
    return edge(0.85 - 0.6 * tip - at.r)


def flower(at: Plane, k: np.ndarray) -> np.ndarray:
    petals = edge(0.55 + 0.28 * np.cos((k + 3) * at.angle) - at.r)
    return petals - 0.6 * edge(0.2 - at.r)


def crescent(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.minimum(0.75 - at.r, np.hypot(at.x - 0.15 - 0.2 * k, at.y) - 0.65))


def hoops(at: Plane, k: np.ndarray) -> np.ndarray:
    apart, count = 0.42, k % 3 + 1
    centre = apart * (np.clip(np.rint(at.x / (2 * apart) + (count - 1) / 2), 0, count - 1) - (count - 1) / 2) * 2
    return edge(np.where(k < 3, 0.07, 0.15) - np.abs(np.hypot(at.x - centre, at.y) - 0.45))


def bricks(at: Plane, k: np.ndarray) -> np.ndarray:
    tall = 0.28 + 0.07 * (k % 3)
    row = np.floor(at.y / tall)
    wide = tall * np.where(k < 3, 2, 1)
    x, y = (at.x / wide + row / 2) % 1, (at.y / tall) % 1
    return edge(np.minimum(np.minimum(x, 1 - x) * wide, np.minimum(y, 1 - y) * tall) - 0.04)


def ripples(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin(9 * (at.y + (0.06 + 0.09 * k) * np.sin(4.5 * at.x))), 0.4)


def clouds(at: Plane, k: np.ndarray) -> np.ndarray:
    return np.clip(0.5 + 0.35 * at.rough * (1 + 0.25 * k) + 0.12 * k * np.sin(3 * at.y), 0, 1)


def blobs(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(at.rough - 1.0 + 0.5 * k, 0.3)


def contours(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((3 + 2 * k) * at.rough), 0.6)


def net(at: Plane, k: np.ndarray) -> np.ndarray:
    pitch = 3 + 1.2 * (k % 3)
    second = np.where(k < 3, at.y, at.x / 2 + at.y * np.sqrt(3) / 2)
    lines = np.minimum(np.abs(np.sin(pitch * at.x)), np.abs(np.sin(pitch * second)))
    return edge(0.3 - lines, 0.2)


def gear(at: Plane, k: np.ndarray) -> np.ndarray:
    teeth = 0.12 * np.tanh(4 * np.sin((2 * k + 6) * at.angle))
    return edge(np.minimum(0.68 + teeth - at.r, at.r - 0.28))


def sunburst(at: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((2 + 2 * k) * at.angle), 0.2 + 0.1 * k)


def leaf(at: Plane, k: np.ndarray) -> np.ndarray:
    outline = (0.14 + 0.12 * k) * np.cos(np.clip(at.x / 0.85, -1, 1) * np.pi / 2) ** 0.8 - np.abs(at.y)
    vein = edge(0.04 - np.abs(at.y), 0.04)
    return edge(outline) - 0.5 * vein * edge(outline)


def hills(at: Plane, k: np.ndarray) -> np.ndarray:
    layers = k + 1
    height = 0.18 * np.sin(2.5 * at.x + 6 * at.dice[:, 0]) + 0.1 * at.rough
    return np.clip(np.ceil((at.y + height + 0.8) * layers / 1.4), 0, layers) / layers


FAMILIES: tuple[Callable[[Plane, np.ndarray], np.ndarray], ...] = (
    stripes,
    checks,
    rings,
    spiral,
    dots,
    polygon,
    star,
    flower,
    crescent,
    hoops,
    bricks,
    ripples,
    clouds,
    blobs,
    contours,
    net,
    gear,
    sunburst,
    leaf,
    hills,
)
"""The coarse classes: of a plane and a member's number (n, 1, 1), the pattern in [0, 1], (n, 32, 32)."""

OBJECTS = {polygon, star, flower, crescent, hoops, gear, leaf}
TURNED = {hills: 0.12, bricks: 0.3, sunburst: np.pi, clouds: 0.3}  # how far, where not all the way round
CLASSES = FINE * len(FAMILIES)


def rgb(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Colours in [0, 1] with channels last, from hues in turns."""
    phase = (hue[..., None] + np.array([0, 2 / 3, 1 / 3])) % 1
    ramp = np.clip(np.abs(phase * 6 - 3) - 1, 0, 1)
    return value[..., None] * (1 - saturation[..., None] * (1 - ramp))


def drawn(label: np.ndarray, dice: np.ndarray, grain: np.ndarray) -> np.ndarray:
    """Images of the classes `label`: `dice`, (n, 16) uniform, and `grain`, (n, 32, 32, 4) normal, decide the rest."""
    n = len(label)
    family, member = np.divmod(label, FINE)
    images = np.empty((n, SIDE, SIDE, 3), np.uint8)
    y, x = (np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2) / (SIDE / 2)
    for c in np.unique(family):
        rows = np.flatnonzero(family == c)
        pattern = FAMILIES[c]
        u = dice[rows][:, :, None, None]
        k = member[rows].astype(float)[:, None, None]
        turn = (2 * u[:, 0] - 1) * TURNED.get(pattern, np.pi)
        zoom = np.exp((u[:, 1] - 0.5) * 0.5) * (1.0 if pattern in OBJECTS else 1.15)
        dx, dy = (u[:, 2] - 0.5) * 0.5, (u[:, 3] - 0.5) * 0.5
        rough = smooth(grain[rows, :, :, 3])
        bend = 0.025 * rough
        px, py = (x - dx) * zoom, (y - dy) * zoom
        px, py = np.cos(turn) * px - np.sin(turn) * py + bend, np.sin(turn) * px + np.cos(turn) * py - bend
        plane = Plane(px, py, np.hypot(px, py), np.arctan2(py, px), rough, u[:, 4:8])
        amount = pattern(plane, k)[..., None]
        hue = (c * 0.618 + 0.07 * (member[rows] - 2) + 0.16 * (dice[rows, 8] - 0.5)) % 1
        other = (hue + 0.3 + 0.05 * c + 0.3 * (dice[rows, 9] - 0.5)) % 1
        front = rgb(hue, 0.35 + 0.6 * dice[rows, 10], 0.55 + 0.45 * dice[rows, 11])[:, None, None]
        back = rgb(other, 0.1 + 0.6 * dice[rows, 12], 0.2 + 0.7 * dice[rows, 13])[:, None, None]
        ground = back + 0.12 * smooth(grain[rows, ::-1, :, 2])[..., None]
        light = 1 + (u[:, 14] - 0.5) * x + (u[:, 15] - 0.5) * y
        image = (amount * front + (1 - amount) * ground) * light[..., None] + 0.04 * grain[rows, :, :, :3]
        images[rows] = np.clip(np.rint(255 * image), 0, 255).astype(np.uint8)
    return images


def smooth(noise: np.ndarray) -> np.ndarray:
    """White noise (n, 32, 32) with the short waves taken out, at unit variance."""
    k = np.fft.fftfreq(SIDE) * SIDE
    keep = np.exp(-np.hypot(k[:, None], k[: SIDE // 2 + 1]) / 2.0)
    low = np.fft.irfft2(np.fft.rfft2(noise) * keep, s=(SIDE, SIDE))
    return low / np.sqrt((low**2).mean((1, 2), keepdims=True))


def pool(examples: np.ndarray, *, seed: int = 0) -> Features:
    """Images of the pool by number: number j is of class j mod 100 and depends on (seed, j) alone."""
    label = examples % CLASSES
    streams = [stream("images", seed, 1, int(j)) for j in examples]
    dice = np.stack([rng.random(16) for rng in streams])
    grain = np.stack([rng.standard_normal((SIDE, SIDE, 4), np.float32) for rng in streams])
    return {
        "image": drawn(label, dice, grain),
        "label": label.astype(np.int32),
        "coarse_label": (label // FINE).astype(np.int32),
    }


def allocation(num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0) -> partition.Indices:
    """The numbers of each client's 100 images, from a pool with equally many of each class."""
    n = PER_CLIENT * num_clients
    rng = stream("images", seed, 0)
    if heterogeneity < 1e-9:
        return partition.iid(rng, n, num_clients)
    label = np.arange(n) % CLASSES
    alpha, beta = 0.1 / heterogeneity, 10 / heterogeneity
    return partition.pachinko(rng, label // FINE, label, num_clients, PER_CLIENT, alpha, beta)


def clients(num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0) -> Iterator[tuple[str, Features]]:
    """Clients of 100 images each: ``image`` (100, 32, 32, 3), uint8, ``label`` 0..99 and ``coarse_label`` 0..19, int32.

    The pool has 100 * num_clients images and all of it is given out, so that a client's share depends on how many
    there are; the images themselves do not, nor on the heterogeneity.

    Args:
      num_clients: how many; the paper's CIFAR-100 has 500.
      seed: of everything random.
      heterogeneity: 0 for an iid split, 1 for the paper's Dirichlet(0.1) over coarse and Dirichlet(10) over fine
        labels, h for Dirichlet(0.1 / h) and Dirichlet(10 / h).
    """
    check(num_clients, seed, heterogeneity)
    shares = allocation(num_clients, seed=seed, heterogeneity=heterogeneity)
    return ((f"client{i:06d}", pool(share, seed=seed)) for i, share in enumerate(shares))
