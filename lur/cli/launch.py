"""`lur launch --processes N -- train TASK ...`: one run over several processes.

The launcher watches what it starts. Each process gives a sign of life twice a second and says when rounds are done;
if one ends before its time, stops answering, or none gets on, all are ended and the launcher says which and why. The
run folder is as after any kill: the same command, with any number of processes, goes on from its last checkpoint.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

import tyro

COMMANDS = ("train",)
FAULT = 1
GRACE = 15.0
"""Seconds that the others may take to end after the first has."""
WORD = 2.0
"""Seconds that the first may take to say what is wrong after another has ended."""
LONGEST = 2.0**30
"""Seconds that jax.distributed can count; patience may be infinite."""
STARTING = 600.0
"""Seconds that a process may take to its first sign of life: it imports jax before."""


def launch(
    command: tyro.conf.Positional[tuple[str, ...]],
    processes: int | None = None,
    devices: int | None = None,
    pin: bool = False,
    heartbeat: float = 20.0,
    patience: float = 1800.0,
) -> int:
    """Run over several processes: lur launch --processes 2 -- train digits --run-dir runs/digits

    With --processes they are started here. Without, this is one process of many that a cluster's own launcher (srun,
    a TPU pod, an indexed job) started, and jax.distributed finds the others.

    Args:
        command: The command, after --: train and its arguments.
        processes: Start so many processes on this machine.
        devices: CPU devices of each process; by default its share of the cores.
        pin: Give each process cores of its own, and no others (Linux).
        heartbeat: Seconds without a sign of life after which a process is given up.
        patience: Seconds in which some rounds must be done, or one evaluation; else all are given up.
    """
    if command[:1] not in [(name,) for name in COMMANDS]:
        raise ValueError(f"expected one of {', '.join(COMMANDS)} and its arguments after --, got {' '.join(command)!r}")
    for name, value in (("--processes", processes), ("--devices", devices)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    for name, seconds in (("--heartbeat", heartbeat), ("--patience", patience)):
        if not seconds >= 1:
            raise ValueError(f"{name} must be >= 1, got {seconds}")
    if processes is None:
        from lur.cli.worker import work
        from lur.parallel.processes import AUTO, VARIABLE

        os.environ[VARIABLE] = AUTO
        sys.argv[1:] = command
        work()
    group = Group.started(command, processes or 1, devices, pin, patience)
    try:
        return watched(group, heartbeat, patience)
    finally:
        group.end()


class Member(NamedTuple):
    """A process, the pipe of its signs of life, and what it complains of (the first complains to the terminal)."""

    process: subprocess.Popen[bytes]
    pipe: int
    complaints: IO[bytes] | None


class Group(NamedTuple):
    """The processes of a run."""

    members: list[Member]

    @staticmethod
    def started(command: Sequence[str], count: int, devices: int | None, pin: bool, patience: float) -> "Group":
        """Start `count` processes, each with its place in its environment."""
        from lur.parallel.processes import VARIABLE

        coordinator = f"127.0.0.1:{free_port()}"
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
        share = max(1, len(cores) // count)
        group = Group([])
        try:
            for index in range(count):
                ours, theirs = os.pipe()
                place = {
                    "coordinator": coordinator,
                    "process": index,
                    "processes": count,
                    "pipe": theirs,
                    "cores": [cores[(index * share + k) % len(cores)] for k in range(share)] if pin else None,
                    "patience": int(min(patience, LONGEST)),  # jax's own: the launcher, which says more, notices first
                }
                environ = {**os.environ, VARIABLE: json.dumps(place)}
                if devices is not None or "JAX_NUM_CPU_DEVICES" not in environ:
                    environ["JAX_NUM_CPU_DEVICES"] = str(devices or share)
                group.members.append(member(command, index, environ, ours, theirs))
        except BaseException:
            group.end()
            raise
        return group

    def kill(self) -> None:
        """End what is left of them, so that none prints anything more."""
        for one in self.members:
            if one.process.poll() is None:
                one.process.kill()
        for one in self.members:
            one.process.wait()

    def end(self) -> None:
        """Leave nothing."""
        self.kill()
        for one in self.members:
            os.close(one.pipe)
            if one.complaints is not None:
                one.complaints.close()


def member(command: Sequence[str], index: int, environ: Mapping[str, str], ours: int, theirs: int) -> Member:
    """Start one process; of all but the first nothing is printed. It does not see the terminal's signals."""
    complaints = tempfile.TemporaryFile() if index else None  # noqa: SIM115 (the group closes it)
    program = "from lur.cli.worker import work; work()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if index else None,
            stderr=complaints,
            env=environ,
            pass_fds=(theirs,),
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return Member(process, ours, complaints)


def free_port() -> int:
    """A port that is free just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def watched(group: Group, heartbeat: float, patience: float) -> int:
    """Wait until all have ended, or one is at fault. Signals go to the first, which tells the others."""
    first = group.members[0].process
    before = {
        number: signal.signal(number, lambda number, frame: first.poll() is None and first.send_signal(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        fault = waited(group, heartbeat, patience)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if fault is None:
        return first.returncode
    group.kill()
    print(
        f"lur launch: {fault}; all {len(group.members)} processes are ended. The same command goes on from the last "
        f"checkpoint of its --run-dir",
        file=sys.stderr,
    )
    return FAULT


def waited(group: Group, heartbeat: float, patience: float) -> str | None:
    """What is wrong, or None when all have ended as they should, or the first has and said why."""
    from lur.parallel.processes import LOST

    now = time.monotonic()
    alive = {k: now + STARTING - heartbeat for k in range(len(group.members))}
    ticks: dict[int, str] = {}
    moved, ended = now + STARTING, None
    while True:
        before = now
        readable, _, _ = select.select([one.pipe for one in group.members], [], [], 0.05)
        now = time.monotonic()
        if now - before > heartbeat / 2:  # all were stopped, and the launcher with them
            alive = {k: at + now - before for k, at in alive.items()}
            moved += now - before
        for k, one in enumerate(group.members):
            if one.pipe in readable and (content := os.read(one.pipe, 2**16)):
                alive[k] = now
                last = content.split()[-1].decode()
                if ticks.get(k) != last:
                    ticks[k], moved = last, max(now, moved) if k not in ticks else now
        statuses = [one.process.poll() for one in group.members]
        first = statuses[0]
        if (first or 0) > 0 and first != LOST:  # it has said why, and the others need not be waited for
            return None
        if None not in statuses:
            return fault_of(group, statuses)
        if first is not None or any(statuses):
            ended = now if ended is None else ended
            died = any(status is not None and status < 0 for status in statuses)
            if died or now - ended > (WORD if first is None else GRACE):
                return fault_of(group, statuses)
        for k, status in enumerate(statuses):
            if status is None and now - alive[k] > heartbeat:
                return f"process {k} gave no sign of life for {heartbeat:g} s"
        if now - moved > patience:
            return f"no rounds were done for {patience:g} s"
        if not readable or any(status is not None for status in statuses):
            time.sleep(0.02)


def fault_of(group: Group, statuses: Sequence[int | None]) -> str | None:
    """Which process is at fault, first those that were killed, last those that lost another; None if none is."""
    from lur.parallel.processes import LOST

    first = statuses[0]
    killed = [k for k, status in enumerate(statuses) if status is not None and status < 0]
    if first == 0:
        late = [str(k) for k, status in enumerate(statuses) if status is None]
        return f"process 0 has ended, but not process {', '.join(late)}" if late else None
    for k in killed:
        return f"process {k} was ended by {signal.Signals(-(statuses[k] or 0)).name}"
    bad = [k for k, status in enumerate(statuses) if status not in (None, 0, LOST)]
    for k in bad:
        return f"process {k} ended with status {statuses[k]}{last_complaint(group.members[k])}"
    lost = [k for k, status in enumerate(statuses) if status == LOST]
    return f"process {lost[0]} lost another{last_complaint(group.members[lost[0]])}"


def last_complaint(one: Member) -> str:
    """The last line that a process wrote to its standard error."""
    if one.complaints is None:
        return ""
    one.complaints.seek(0)
    lines = one.complaints.read().decode(errors="replace").strip().splitlines()
    return f" ({lines[-1][:300]})" if lines else ""
