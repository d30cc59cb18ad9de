"""Processes meet at the coordinator's address before `jax.distributed` connects them.

`jax.distributed` aborts the interpreter if nothing answers at the coordinator's address, if another program does, if a
process is missing or if two have the same index. So process 0 first listens there itself. Every other process says who
it is and how many it expects, and all learn whether they fit together; then process 0 leaves the port to
`jax.distributed`.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

GREETING = "lur rendezvous"
"""The first field of every message, by which other programs are told apart."""
MAX_MESSAGE = 4096
ANSWER_SECONDS = 5.0
"""Seconds within which a program that has connected must say who it is."""
RETRY_SECONDS = 0.05


class Guest(NamedTuple):
    """A process that has connected to process 0.

    Attributes:
      process: its index.
      processes: the number of processes that it expects.
    """

    process: int
    processes: int


def meet(coordinator: str, process: int, processes: int, seconds: float, *, is_local: bool = False) -> None:
    """Wait until all processes have met, or raise an error in all of them.

    Args:
      coordinator: host and port.
      process: index of this process.
      processes: number of processes.
      seconds: how long to wait at most.
      is_local: whether process 0 listens at the coordinator's address only; otherwise at all addresses of its machine,
        as `jax.distributed` does.
    """
    address, deadline = parse_address(coordinator), time.monotonic() + seconds
    try:
        socket.getaddrinfo(*address)
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"cannot resolve the coordinator's host {address[0]!r}: {error}") from None
    if process == 0:
        fault = _host(coordinator, address if is_local else ("", address[1]), processes, seconds, deadline)
    else:
        fault = _visit(coordinator, address, Guest(process, processes), seconds, deadline)
    if fault:
        raise ConnectionError(fault)


def parse_address(coordinator: str) -> tuple[str, int]:
    """Return host and port of an address such as ``10.0.0.1:1234`` or ``[::1]:1234``."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"the coordinator's address must be a host and a port, such as host:1234, got {coordinator!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def find_misfit(guests: Sequence[Guest], processes: int) -> str | None:
    """Return why processes do not fit together with process 0, which expects `processes`; None if they do."""
    seen = {0}
    for guest in guests:
        if guest.processes != processes:
            return (
                f"processes must expect the same number of processes, got {processes} in process 0 and "
                f"{guest.processes} in process {guest.process}"
            )
        if guest.process in seen or not 0 <= guest.process < processes:
            return f"processes must have different indices from 0 to {processes - 1}, got two with {guest.process}"
        seen.add(guest.process)
    return None


def _host(coordinator: str, address: tuple[str, int], processes: int, seconds: float, deadline: float) -> str | None:
    """Wait for the other processes at the coordinator's address and tell them what is wrong; None if nothing is."""
    guests: list[Guest] = []
    connections: list[socket.socket] = []
    fault = None
    try:
        both = not address[0] and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in address[0] else socket.AF_INET
        opened = socket.create_server(address, family=family, backlog=processes, dualstack_ipv6=both)
    except OSError as error:
        return (
            f"process 0 cannot listen at {coordinator}, where the coordinator must be: {os.strerror(error.errno or 0)}"
        )
    try:
        with opened as listener:
            while fault is None and len(guests) < processes - 1:
                listener.settimeout(max(deadline - time.monotonic(), 0.001))
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    missing = sorted({*range(1, processes)} - {guest.process for guest in guests})
                    listed = ", ".join(map(str, missing))
                    fault = f"process {listed} did not connect to process 0 at {coordinator} within {seconds:g} s"
                    continue
                connections.append(connection)
                message = _receive(connection, min(deadline, time.monotonic() + ANSWER_SECONDS))
                guest = (message or {}).get("guest")
                if isinstance(guest, list) and [*map(type, guest)] == [int, int]:
                    guests.append(Guest(*guest))
                    fault = find_misfit(guests, processes)
        for connection in connections:
            _send(connection, {"fault": fault})
    finally:
        for connection in connections:
            connection.close()
    return fault


def _visit(coordinator: str, address: tuple[str, int], guest: Guest, seconds: float, deadline: float) -> str | None:
    """Connect to process 0 and return what it says is wrong; None if nothing is."""
    connection = _connect(address, deadline)
    if connection is None:
        return f"cannot connect to process 0 at {coordinator}: nothing answered within {seconds:g} s"
    with connection:
        _send(connection, {"guest": guest})
        message = _receive(connection, deadline + ANSWER_SECONDS)
    if message is None:
        return (
            f"cannot connect to process 0 at {coordinator}: what listens there is another program, or process 0 has "
            f"ended or did not answer within {seconds:g} s"
        )
    if message.get("fault"):
        return str(message["fault"])
    connection = _connect(address, deadline + ANSWER_SECONDS)  # now `jax.distributed` of process 0 answers
    if connection is None:
        return f"process 0 ended after all processes had met at {coordinator}"
    connection.close()
    return None


def _connect(address: tuple[str, int], deadline: float) -> socket.socket | None:
    """Return a connection as soon as something listens at the address; None if nothing does until the deadline."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            return socket.create_connection(address, timeout=left)
        except OSError:  # not yet
            time.sleep(RETRY_SECONDS)
    return None


def _send(connection: socket.socket, message: dict) -> None:
    """Send a message to a process that may have ended: then it needs none."""
    try:
        connection.sendall(json.dumps({"greeting": GREETING, **message}).encode() + b"\n")
    except OSError:
        return


def _receive(connection: socket.socket, deadline: float) -> dict | None:
    """Return the message of another process; None if none comes or if it is not one of ours."""
    content = b""
    try:
        while not content.endswith(b"\n") and len(content) < MAX_MESSAGE:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            part = connection.recv(MAX_MESSAGE)
            if not part:
                return None
            content += part
        message = json.loads(content)
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) and message.get("greeting") == GREETING else None
