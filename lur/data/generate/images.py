"""Small colour images, a stand-in for CIFAR-100: 20 families of textures and shapes (the coarse labels), five of each.

Every family is a formula for a pattern in the plane, and its five members differ in one parameter: the sides of a
polygon, the arms of a spiral, the pitch of a weave. A family has a colour scheme, which its members shift. Position,
angle, size, colours, light and noise vary between images. Clients draw their images by Pachinko allocation, as for the
paper's CIFAR-100.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lur.data import partition
from lur.data.generate.seeds import Features, check_arguments, generator_for

SIDE = 32
FINE = 5
PER_CLIENT = 100


class Plane(NamedTuple):
    """The points at which the patterns of n images are evaluated, each (n, 32, 32), and their randomness.

    Attributes:
      x: the horizontal coordinate; the image is about [-1, 1].
      y: the vertical coordinate.
      r: the distance to the origin.
      angle: the polar angle.
      noise: smooth noise of unit variance.
      uniform: uniform random numbers, (n, 4, 1, 1).
    """

    x: np.ndarray
    y: np.ndarray
    r: np.ndarray
    angle: np.ndarray
    noise: np.ndarray
    uniform: np.ndarray


def edge(distance: np.ndarray, softness: float | np.ndarray = 0.06) -> np.ndarray:
    """Return 1 inside (distance > 0), 0 outside, and a ramp about as wide as a pixel in between."""
    return np.clip(0.5 + distance / (2 * softness), 0, 1)


def stripes(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((5 + 4 * k) * plane.x) - 0.3, 0.4)


def checks(plane: Plane, k: np.ndarray) -> np.ndarray:
    pitch = 3.5 + 2.2 * k
    return edge(np.sin(pitch * plane.x) * np.sin(pitch * plane.y), 0.2)


def rings(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((7 + 4.5 * k) * plane.r), 0.4)


def spiral(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((k + 1) * plane.angle + 7 * plane.r), 0.4)


def dots(plane: Plane, k: np.ndarray) -> np.ndarray:
    pitch = 5 + 2 * (k % 3)
    return edge(np.cos(pitch * plane.x) + np.cos(pitch * plane.y) - np.where(k < 3, 0.9, -0.4), 0.4)


def polygon(plane: Plane, k: np.ndarray) -> np.ndarray:
    sides = np.where(k == 4, 8, k + 3)
    sector = 2 * np.pi / sides
    return edge(0.62 - plane.r * np.cos((plane.angle % sector) - sector / 2))


def star(plane: Plane, k: np.ndarray) -> np.ndarray:
    points = np.where(k == 4, 9, k + 3)
    sector = 2 * np.pi / points
    tip = np.abs((plane.angle % sector) - sector / 2) / (sector / 2)
    return edge(0.85 - 0.6 * tip - plane.r)


def flower(plane: Plane, k: np.ndarray) -> np.ndarray:
    petals = edge(0.55 + 0.28 * np.cos((k + 3) * plane.angle) - plane.r)
    return petals - 0.6 * edge(0.2 - plane.r)


def crescent(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.minimum(0.75 - plane.r, np.hypot(plane.x - 0.15 - 0.2 * k, plane.y) - 0.65))


def hoops(plane: Plane, k: np.ndarray) -> np.ndarray:
    spacing, count = 0.42, k % 3 + 1
    centre = spacing * (np.clip(np.rint(plane.x / (2 * spacing) + (count - 1) / 2), 0, count - 1) - (count - 1) / 2) * 2
    return edge(np.where(k < 3, 0.07, 0.15) - np.abs(np.hypot(plane.x - centre, plane.y) - 0.45))


def bricks(plane: Plane, k: np.ndarray) -> np.ndarray:
    height = 0.28 + 0.07 * (k % 3)
    row = np.floor(plane.y / height)
    width = height * np.where(k < 3, 2, 1)
    x, y = (plane.x / width + row / 2) % 1, (plane.y / height) % 1
    return edge(np.minimum(np.minimum(x, 1 - x) * width, np.minimum(y, 1 - y) * height) - 0.04)


def ripples(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin(9 * (plane.y + (0.06 + 0.09 * k) * np.sin(4.5 * plane.x))), 0.4)


def clouds(plane: Plane, k: np.ndarray) -> np.ndarray:
    return np.clip(0.5 + 0.35 * plane.noise * (1 + 0.25 * k) + 0.12 * k * np.sin(3 * plane.y), 0, 1)


def blobs(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(plane.noise - 1.0 + 0.5 * k, 0.3)


def contours(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((3 + 2 * k) * plane.noise), 0.6)


def net(plane: Plane, k: np.ndarray) -> np.ndarray:
    pitch = 3 + 1.2 * (k % 3)
    second = np.where(k < 3, plane.y, plane.x / 2 + plane.y * np.sqrt(3) / 2)
    lines = np.minimum(np.abs(np.sin(pitch * plane.x)), np.abs(np.sin(pitch * second)))
    return edge(0.3 - lines, 0.2)


def gear(plane: Plane, k: np.ndarray) -> np.ndarray:
    teeth = 0.12 * np.tanh(4 * np.sin((2 * k + 6) * plane.angle))
    return edge(np.minimum(0.68 + teeth - plane.r, plane.r - 0.28))


def sunburst(plane: Plane, k: np.ndarray) -> np.ndarray:
    return edge(np.sin((2 + 2 * k) * plane.angle), 0.2 + 0.1 * k)


def leaf(plane: Plane, k: np.ndarray) -> np.ndarray:
    outline = (0.14 + 0.12 * k) * np.cos(np.clip(plane.x / 0.85, -1, 1) * np.pi / 2) ** 0.8 - np.abs(plane.y)
    vein = edge(0.04 - np.abs(plane.y), 0.04)
    return edge(outline) - 0.5 * vein * edge(outline)


def hills(plane: Plane, k: np.ndarray) -> np.ndarray:
    layers = k + 1
    height = 0.18 * np.sin(2.5 * plane.x + 6 * plane.uniform[:, 0]) + 0.1 * plane.noise
    return np.clip(np.ceil((plane.y + height + 0.8) * layers / 1.4), 0, layers) / layers


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
"""The coarse classes: functions of a plane and of a member's number (n, 1, 1) that return a pattern in [0, 1]."""

OBJECTS = {polygon, star, flower, crescent, hoops, gear, leaf}
MAX_ROTATION = {hills: 0.12, bricks: 0.3, sunburst: np.pi, clouds: 0.3}  # in radians; pi for all other families
CLASSES = FINE * len(FAMILIES)


def rgb(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return RGB colours in [0, 1], channels last, from hues in turns, saturations and values."""
    phase = (hue[..., None] + np.array([0, 2 / 3, 1 / 3])) % 1
    ramp = np.clip(np.abs(phase * 6 - 3) - 1, 0, 1)
    return value[..., None] * (1 - saturation[..., None] * (1 - ramp))


def render(label: np.ndarray, uniform: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Return images of the classes `label`.

    Args:
      label: the classes, (n,).
      uniform: uniform random numbers for position, angle, size, colours and light, (n, 16).
      normal: normal random numbers for textures and noise, (n, 32, 32, 4).
    """
    n = len(label)
    family, member = np.divmod(label, FINE)
    images = np.empty((n, SIDE, SIDE, 3), np.uint8)
    y, x = (np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2) / (SIDE / 2)
    for c in np.unique(family):
        rows = np.flatnonzero(family == c)
        pattern = FAMILIES[c]
        u = uniform[rows][:, :, None, None]
        k = member[rows].astype(float)[:, None, None]
        rotation = (2 * u[:, 0] - 1) * MAX_ROTATION.get(pattern, np.pi)
        zoom = np.exp((u[:, 1] - 0.5) * 0.5) * (1.0 if pattern in OBJECTS else 1.15)
        dx, dy = (u[:, 2] - 0.5) * 0.5, (u[:, 3] - 0.5) * 0.5
        noise = smooth(normal[rows, :, :, 3])
        bend = 0.025 * noise
        px, py = (x - dx) * zoom, (y - dy) * zoom
        px, py = (
            np.cos(rotation) * px - np.sin(rotation) * py + bend,
            np.sin(rotation) * px + np.cos(rotation) * py - bend,
        )
        plane = Plane(px, py, np.hypot(px, py), np.arctan2(py, px), noise, u[:, 4:8])
        amount = pattern(plane, k)[..., None]
        hue = (c * 0.618 + 0.07 * (member[rows] - 2) + 0.16 * (uniform[rows, 8] - 0.5)) % 1
        back_hue = (hue + 0.3 + 0.05 * c + 0.3 * (uniform[rows, 9] - 0.5)) % 1
        front = rgb(hue, 0.35 + 0.6 * uniform[rows, 10], 0.55 + 0.45 * uniform[rows, 11])[:, None, None]
        back = rgb(back_hue, 0.1 + 0.6 * uniform[rows, 12], 0.2 + 0.7 * uniform[rows, 13])[:, None, None]
        ground = back + 0.12 * smooth(normal[rows, ::-1, :, 2])[..., None]
        light = 1 + (u[:, 14] - 0.5) * x + (u[:, 15] - 0.5) * y
        image = (amount * front + (1 - amount) * ground) * light[..., None] + 0.04 * normal[rows, :, :, :3]
        images[rows] = np.clip(np.rint(255 * image), 0, 255).astype(np.uint8)
    return images


def smooth(noise: np.ndarray) -> np.ndarray:
    """Return white noise (n, 32, 32) with high frequencies damped, scaled to unit variance."""
    k = np.fft.fftfreq(SIDE) * SIDE
    keep = np.exp(-np.hypot(k[:, None], k[: SIDE // 2 + 1]) / 2.0)
    low = np.fft.irfft2(np.fft.rfft2(noise) * keep, s=(SIDE, SIDE))
    return low / np.sqrt((low**2).mean((1, 2), keepdims=True))


def pool(examples: np.ndarray, *, seed: int = 0) -> Features:
    """Return images of the pool by number: image j is of class j mod 100 and depends on (seed, j) alone."""
    label = examples % CLASSES
    generators = [generator_for("images", seed, 1, int(j)) for j in examples]
    uniform = np.stack([rng.random(16) for rng in generators])
    normal = np.stack([rng.standard_normal((SIDE, SIDE, 4), np.float32) for rng in generators])
    return {
        "image": render(label, uniform, normal),
        "label": label.astype(np.int32),
        "coarse_label": (label // FINE).astype(np.int32),
    }


def allocation(num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0) -> partition.Indices:
    """Return the numbers of each client's 100 images, from a pool with equally many images of each class."""
    n = PER_CLIENT * num_clients
    rng = generator_for("images", seed, 0)
    if heterogeneity < 1e-9:
        return partition.iid(rng, n, num_clients)
    label = np.arange(n) % CLASSES
    alpha, beta = 0.1 / heterogeneity, 10 / heterogeneity
    return partition.pachinko(rng, label // FINE, label, num_clients, PER_CLIENT, alpha, beta)


def clients(num_clients: int, *, seed: int = 0, heterogeneity: float = 1.0) -> Iterator[tuple[str, Features]]:
    """Return clients of 100 images: ``image`` (100, 32, 32, 3), uint8, ``label`` and ``coarse_label`` (100,), int32.

    The clients partition a pool of 100 * num_clients images, so a client's share depends on the number of clients. The
    images of the pool depend neither on the number of clients nor on the heterogeneity.

    Args:
      num_clients: the number of clients; the paper's CIFAR-100 has 500.
      seed: the seed of the images and of the partition.
      heterogeneity: 0 for an iid partition, 1 for the paper's Dirichlet(0.1) over coarse and Dirichlet(10) over fine
        labels, h for Dirichlet(0.1 / h) and Dirichlet(10 / h).
    """
    check_arguments(num_clients, seed, heterogeneity)
    shares = allocation(num_clients, seed=seed, heterogeneity=heterogeneity)
    return ((f"client{i:06d}", pool(share, seed=seed)) for i, share in enumerate(shares))
