r"""3x3 convolutions with fewer multiplications: Winograd's F(2x2, 3x3) (Lavin and Gray 2016).

Two neighbouring outputs of a correlation with three weights take four products instead of six:

.. math:: y = A^\top \big( (G w) \odot (B^\top x) \big),

and along both axes 16 instead of 36. Summed over channels, the products are one batch of 16 matrix multiplications. The
three transforms are constant matrices that act on an image's pixels or on a kernel's nine entries, and not on channels.
XLA compiles only five matrix products for the forward pass and as many for each gradient. For small images with many
channels, on CPU, the transforms are cheap; their cost grows with the square of the number of pixels. The result differs
from the direct one by rounding: 1e-6 of the largest value in single precision, 1e-15 in double.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

IMAGE = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]])
KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
OUTPUT = np.array([[1, 1, 1, 0], [0, 1, -1, 1]])


def winograd3x3(x: Float[Array, "B H W I"], w: Float[Array, "3 3 I O"]) -> Float[Array, "B H W O"]:
    """Return the cross-correlation of x with w at stride 1, padded to the size of x."""
    (B, H, W, inputs), outputs = x.shape, w.shape[-1]
    image, kernel, output = (jnp.asarray(matrix, x.dtype) for matrix in transforms(H, W))
    pixels = x.reshape(B, H * W, inputs).swapaxes(0, 1).reshape(H * W, B * inputs)
    tiles = (image @ pixels).reshape(16, -1, inputs)
    weights = (kernel @ w.reshape(9, -1)).reshape(16, inputs, outputs)
    products = (tiles @ weights).reshape(output.shape[1], B * outputs)
    return (output @ products).reshape(H * W, B, outputs).swapaxes(0, 1).reshape(B, H, W, outputs)


@cache
def transforms(H: int, W: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices from pixels to the 16 entries of a tile, from 9 to 16 weights, and from tiles to pixels."""
    (rows, row_outputs), (columns, column_outputs) = axis_transforms(H), axis_transforms(W)
    image = np.einsum("ath,bsw->abtshw", rows, columns).reshape(-1, H * W)
    output = np.einsum("hat,wbs->hwabts", row_outputs, column_outputs).reshape(H * W, -1)
    return image, np.kron(KERNEL, KERNEL), output


def axis_transforms(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the transforms of one axis, from n pixels to (4, tiles) and back.

    Tiles of four pixels begin at every second pixel, from pixel -1 on.
    """
    tiles = (n + 1) // 2
    padded = np.zeros((4, tiles, 2 * tiles + 2))
    output = np.zeros((2 * tiles, 4, tiles))
    for t in range(tiles):
        padded[:, t, 2 * t : 2 * t + 4] = IMAGE
        output[2 * t : 2 * t + 2, :, t] = OUTPUT
    return padded[:, :, 1 : n + 1], output[:n]
