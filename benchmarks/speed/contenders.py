"""The contenders of a race: lur's variants, the floor and the peers, each a process that answers lines of JSON.

The *floor* is one gradient of all the examples of a round, without local steps; *peers* are other frameworks. The
protocol is in `benchmarks.speed.peers.protocol`.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.speed.environments import Environment, Unavailable, last_lines, python_of

TORCH = "torch==2.13.0"


class Peer(NamedTuple):
    """Another framework.

    Attributes:
        script: Its worker in the folder `peers`; None if there is none.
        environment: The packages it runs with.
    """

    script: str | None
    environment: Environment


PEERS: dict[str, Peer] = {
    "torch": Peer("torch_loop.py", Environment((TORCH, "numpy>=2"))),
    "fedjax": Peer(
        "fedjax_peer.py", Environment(("fedjax==0.0.17", "jax==0.4.35", "jaxlib==0.4.35", "dm-haiku==0.0.13"))
    ),
    "pfl": Peer("pfl_peer.py", Environment(("pfl[pytorch]==0.6.0", TORCH))),
    "flower": Peer("flower_peer.py", Environment(("flwr[simulation]==1.42.0", TORCH))),
    "flower-1.41": Peer("flower_peer.py", Environment(("flwr[simulation]==1.41.0", TORCH))),
    "tff": Peer(None, Environment(("tensorflow-federated==0.87.0",))),
}
STAND_INS = {"flower": "flower-1.41"}
"""The version measured, under its own name, where a peer cannot be installed."""


def variants(task: str) -> tuple[str, ...]:
    """lur's own contenders, the reference first. Fewer of them differ on tiny, where lur uses vmap anyway."""
    if task == "tiny":
        return ("lur", "lur-plain-vmap", "floor")
    return ("lur", "lur-one-device", "lur-vmap", "lur-plain", "lur-plain-vmap", "floor")


def command_of(name: str) -> list[str]:
    """The command that starts a contender; creates its environment where needed. Raises `Unavailable`."""
    if name not in PEERS:
        return [sys.executable, "-m", "benchmarks.speed.lur_worker", name]
    peer = PEERS[name]
    python = python_of(name, peer.environment)
    if peer.script is None:
        raise Unavailable("it can be installed here, but has no worker script: no machine we tried could install it")
    return [str(python), str(Path(__file__).parent / "peers" / peer.script)]


class Contender:
    """A running contender: `ask` sends a request, `close` ends the process."""

    def __init__(self, name: str, command: Sequence[str], log: Path):
        self.name, self.log = name, log
        hidden = ("JAX_COMPILATION_CACHE_DIR", "PYTHONPATH", "VIRTUAL_ENV")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """Its answer to a request. Raises `Unavailable` if it dies or takes longer than `limit` seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        kind = next(iter(request))
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], limit)[0]:
                raise Unavailable(f"`{kind}` took more than {limit:.0f} s")
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            self.process.wait(10)
            raise Unavailable(f"`{kind}` failed: {last_lines(self.log.read_text(errors='replace'))}")
        return json.loads(line)

    def close(self) -> None:
        """Closes its input and, if it does not end within ten seconds, kills it and its children."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()
