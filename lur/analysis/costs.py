r"""What a round costs on machines that are not here: formulas, which the tests hold against the compiled program.

With P parameters of b bytes, M clients, K steps on B examples, D devices on H hosts, and c clients at once on a device:

.. math::
    \text{clients of a device} &= m = \lceil M / D \rceil, \qquad \text{numbers in the sum} = P + 2 m D, \\
    \text{bytes through a device's link} &= 2 \tfrac{D - 1}{D} b (P + 2 m D) \quad \text{(ring)}, \qquad
    \text{through a host's} = 2 \tfrac{H - 1}{H} b (P + 2 m D), \\
    \text{memory of a device} &= (2 s + 3 c + r) b P + c\, a(B) + \text{examples}.

s is 1 for the model and 1 more for each moment of the server's optimiser, held before the round and after it; a client
at work has its model, a gradient and its message (where all weights Theta are alike its model is made anew in each
step, and the compiler may do with 2 c instead of 3 c); r is 1 for the running sum, 0 where all of a device's clients
run at once and need none. What is sent and received takes the clients' place: they have ended. a(B), the activations of
a mini-batch, is the model's own. Examples: a store that is resident, or m K B of those of a round (and as much for
every round that is read ahead) where processes read on the host.
"""

import math
from typing import NamedTuple


class Machine(NamedTuple):
    """Devices and links of a cluster.

    Attributes:
        devices: Number of devices D.
        hosts: Number of hosts H.
        flops: Operations per second of a device.
        device_link: Bytes per second through the link of a device.
        host_link: Bytes per second through the link of a host.
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
    at_once: int | None = 1,
    moments: int = 0,
    activations: int = 0,
    examples: int = 0,
    width: int = 4,
) -> Cost:
    """The cost of a round.

    Args:
      parameters: P.
      M: clients per round.
      machine: D and H count.
      at_once: c, clients at once on a device; None for all of its own.
      moments: of the server's optimiser: 0 for SGD, 2 for Yogi and Adam.
      activations: a(B), bytes of a client's mini-batch at work.
      examples: bytes of examples on a device.
      width: b, bytes of a number.
    """
    for name, value in (("parameters", parameters), ("M", M), ("devices", machine.devices), ("hosts", machine.hosts)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    D, H = machine.devices, machine.hosts
    clients = math.ceil(M / D)
    numbers = parameters + 2 * clients * D
    running = clients if at_once is None else min(at_once, clients)
    is_summed = at_once == 1 or running < clients
    models = 2 * (1 + moments) + 3 * running + is_summed
    memory = models * width * parameters + running * activations + examples
    return Cost(clients, numbers, ring(D) * width * numbers, ring(H) * width * numbers, memory)


def ring(n: int) -> float:
    """What of a message of 1 goes through each link of a ring in an all-reduce."""
    return 2 * (n - 1) / n


def seconds(found: Cost, machine: Machine, flops_of_client: float) -> tuple[float, float]:
    """Computing and sending, where neither hides the other; a rate of 0 is one that nothing waits for."""
    computing = found.clients * flops_of_client / machine.flops if machine.flops else 0.0
    links = ((found.device_bytes, machine.device_link), (found.host_bytes, machine.host_link))
    return computing, sum(size / rate for size, rate in links if rate)
