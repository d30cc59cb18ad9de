r"""The cost of a round on a given machine: formulas, which the tests compare with compiled programs.

With P parameters of b bytes, M clients, K steps on B examples, D devices on H hosts, and c clients at a time on a
device:

.. math::
    \text{clients of a device} &= m = \lceil M / D \rceil, \qquad \text{numbers in the sum} = P + 2 m D, \\
    \text{bytes through a device's link} &= 2 \tfrac{D - 1}{D} b (P + 2 m D) \quad \text{(ring)}, \qquad
    \text{through a host's} = 2 \tfrac{H - 1}{H} b (P + 2 m D), \\
    \text{memory of a device} &= (2 s + 3 c + r) b P + c\, a(B) + \text{examples}.

Here s is 1 for the model plus 1 for each moment of the server optimiser, all of which exist before and after the round.
A running client has its model, a gradient and its update; if all weights Theta are equal, its model is recomputed in
each step, and the compiler may need 2 c instead of 3 c. r is 1 for the running sum, or 0 if all clients of a device run
at the same time and need none. The all-reduce reuses the memory of the clients, which have finished. a(B), the
activations of a mini-batch, depends on the model. The examples are the whole store if it is in device memory, or the
m K B examples of a round, plus as many for every round that is prefetched, if processes read on the host.
"""

import math
from typing import NamedTuple


class Machine(NamedTuple):
    """Devices and links of a cluster.

    Attributes:
        devices: Number of devices D.
        hosts: Number of hosts H.
        flops: Operations per second of a device; 0 to ignore the time of computation.
        device_link: Bytes per second through the link of a device; 0 to ignore its time.
        host_link: Bytes per second through the link of a host; 0 to ignore its time.
    """

    devices: int
    hosts: int = 1
    flops: float = 0.0
    device_link: float = 0.0
    host_link: float = 0.0


class Cost(NamedTuple):
    """The cost of one round.

    Attributes:
        clients: Clients on a device.
        numbers: Numbers in the sum over devices.
        device_bytes: Bytes through the link of a device.
        host_bytes: Bytes through the link of a host.
        memory: Bytes in the memory of a device.
    """

    clients: int
    numbers: int
    device_bytes: float
    host_bytes: float
    memory: float


def cost(
    parameters: int,
    M: int,
    machine: Machine,
    *,
    chunk_size: int | None = 1,
    moments: int = 0,
    activations: int = 0,
    examples: int = 0,
    width: int = 4,
) -> Cost:
    """Return the cost of a round.

    Args:
      parameters: P, the number of parameters.
      M: the number of clients per round.
      machine: the machine, of which the numbers of devices and hosts matter.
      chunk_size: c, the number of clients that a device runs at a time; None for all of them.
      moments: the number of moments of the server optimiser: 0 for SGD, 2 for Yogi and Adam.
      activations: a(B), the bytes of a client's activations.
      examples: the bytes of examples on a device.
      width: b, the bytes of a number.
    """
    for name, value in (("parameters", parameters), ("M", M), ("devices", machine.devices), ("hosts", machine.hosts)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    D, H = machine.devices, machine.hosts
    clients = math.ceil(M / D)
    numbers = parameters + 2 * clients * D
    running = clients if chunk_size is None else min(chunk_size, clients)
    has_running_sum = chunk_size == 1 or running < clients
    models = 2 * (1 + moments) + 3 * running + has_running_sum
    memory = models * width * parameters + running * activations + examples
    return Cost(clients, numbers, ring_traffic(D) * width * numbers, ring_traffic(H) * width * numbers, memory)


def ring_traffic(n: int) -> float:
    """Return the bytes through each link of a ring of n devices, per byte of the all-reduced array."""
    return 2 * (n - 1) / n


def seconds(cost: Cost, machine: Machine, client_flops: float) -> tuple[float, float]:
    """Return the seconds of computation and of communication of a round, without overlap.

    Args:
      cost: the cost of the round.
      machine: the machine; a rate of 0 contributes no time.
      client_flops: the operations of one client in a round.
    """
    computation = cost.clients * client_flops / machine.flops if machine.flops else 0.0
    links = ((cost.device_bytes, machine.device_link), (cost.host_bytes, machine.host_link))
    return computation, sum(size / rate for size, rate in links if rate)
