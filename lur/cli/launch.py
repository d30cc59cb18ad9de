"""`lur launch --processes N -- train TASK ...`: one run over several processes.

The launcher watches the processes that it starts. Each sends a heartbeat twice a second and reports when rounds are
done. If one ends early, stops responding, or no rounds are done, the launcher ends all and says which one and why. The
run folder is then as after any kill: the same command, with any number of processes, resumes from the last checkpoint.
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

from lur.cli.output import printable

COMMANDS = ("train",)
FAILED = 1
"""Exit status of the launcher when a process failed."""
EXIT_TIMEOUT = 15.0
"""Seconds within which the other processes must end after the first one has."""
ERROR_TIMEOUT = 2.0
"""Seconds within which the first process can report an error after another one has ended."""
MAX_TIMEOUT = 2.0**30
"""Largest timeout that jax.distributed accepts, in seconds; --patience may be infinite."""
START_TIMEOUT = 600.0
"""Seconds within which a process must send its first heartbeat; it imports jax before."""


def launch(
    command: tyro.conf.Positional[tuple[str, ...]],
    processes: int | None = None,
    devices: int | None = None,
    pin: bool = False,
    heartbeat: float = 20.0,
    patience: float = 1800.0,
) -> int:
    """Run over several processes: lur launch --processes 2 -- train digits --run-dir runs/digits

    With --processes, the processes are started on this machine. Without it, this is one of the processes that the
    launcher of a cluster (srun, a TPU pod, an indexed job) started, and jax.distributed finds the others.

    Args:
        command: The command, after --: train and its arguments.
        processes: Number of processes to start on this machine.
        devices: Number of CPU devices of each process; by default its share of the cores.
        pin: Pin each process to cores of its own (Linux).
        heartbeat: Seconds without a heartbeat after which a process counts as lost.
        patience: Seconds within which some rounds or an evaluation must be done; otherwise the run has failed.
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

        os.environ[VARIABLE] = f"{AUTO}:{min(patience, MAX_TIMEOUT):g}"
        sys.argv[1:] = command
        work()
    group = ProcessGroup.start(command, processes or 1, devices, pin, patience)
    try:
        return _wait_with_signals(group, heartbeat, patience)
    finally:
        group.close()


class Worker(NamedTuple):
    """A process of the group.

    Attributes:
        process: the process.
        pipe: file descriptor from which its heartbeats are read.
        errors: its standard error; None for the first process, which writes to the terminal.
    """

    process: subprocess.Popen[bytes]
    pipe: int
    errors: IO[bytes] | None


class ProcessGroup(NamedTuple):
    """The processes of a run.

    Attributes:
        workers: the processes, in the order of their index.
    """

    workers: list[Worker]

    @staticmethod
    def start(command: Sequence[str], count: int, devices: int | None, pin: bool, patience: float) -> "ProcessGroup":
        """Start `count` processes, each with its place among them in an environment variable."""
        from lur.parallel.processes import VARIABLE

        coordinator = f"127.0.0.1:{_free_port()}"
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
        share = max(1, len(cores) // count)
        group = ProcessGroup([])
        try:
            for index in range(count):
                read_end, write_end = os.pipe()
                place = {
                    "coordinator": coordinator,
                    "process": index,
                    "processes": count,
                    "pipe": write_end,
                    "cores": [cores[(index * share + k) % len(cores)] for k in range(share)] if pin else None,
                    "patience": int(min(patience, MAX_TIMEOUT)),  # the launcher says more, so jax must not notice first
                }
                environ = {**os.environ, VARIABLE: json.dumps(place)}
                if devices is not None or "JAX_NUM_CPU_DEVICES" not in environ:
                    environ["JAX_NUM_CPU_DEVICES"] = str(devices or share)
                group.workers.append(_start_worker(command, index, environ, read_end, write_end))
        except BaseException:
            group.close()
            raise
        return group

    def kill(self) -> None:
        """Kill the processes that still run, and wait for their end."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
        for worker in self.workers:
            worker.process.wait()

    def close(self) -> None:
        """Kill the processes that still run, and close all files."""
        self.kill()
        for worker in self.workers:
            os.close(worker.pipe)
            if worker.errors is not None:
                worker.errors.close()


def _start_worker(
    command: Sequence[str], index: int, environ: Mapping[str, str], read_end: int, write_end: int
) -> Worker:
    """Start one process. Only the first one prints, and none receives the signals of the terminal."""
    errors = tempfile.TemporaryFile() if index else None  # noqa: SIM115 (the group closes it)
    program = "from lur.cli.worker import work; work()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if index else None,
            stderr=errors,
            env=environ,
            pass_fds=(write_end,),
            start_new_session=True,
        )
    finally:
        os.close(write_end)
    os.set_blocking(read_end, False)
    return Worker(process, read_end, errors)


def _free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_with_signals(group: ProcessGroup, heartbeat: float, patience: float) -> int:
    """Wait for the processes, passing signals on to the first one, which tells the others. Returns the exit status."""
    first = group.workers[0].process
    previous = {
        number: signal.signal(number, lambda number, frame: first.poll() is None and first.send_signal(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        fault = wait_for_fault(group, heartbeat, patience)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if fault is None:
        return first.returncode
    group.kill()
    print(
        f"lur launch: {printable(fault)}; all {len(group.workers)} processes were ended. The same command resumes "
        f"from the last checkpoint in its --run-dir",
        file=sys.stderr,
    )
    return FAILED


def wait_for_fault(group: ProcessGroup, heartbeat: float, patience: float) -> str | None:
    """Wait until all processes have ended or one has failed.

    Args:
        group: the processes.
        heartbeat: seconds without a heartbeat after which a process counts as lost.
        patience: seconds within which some rounds must be done.

    Returns:
        What failed; None if all ended well, or if the first process ended with an error that it has reported itself.
    """
    from lur.parallel.processes import LOST

    now = time.monotonic()
    last_heartbeat = {k: now + START_TIMEOUT - heartbeat for k in range(len(group.workers))}
    ticks: dict[int, str] = {}
    last_tick, first_end = now + START_TIMEOUT, None
    while True:
        before = now
        readable, _, _ = select.select([worker.pipe for worker in group.workers], [], [], 0.05)
        now = time.monotonic()
        if now - before > heartbeat / 2:  # the launcher was suspended, and the processes with it
            last_heartbeat = {k: at + now - before for k, at in last_heartbeat.items()}
            last_tick += now - before
        for k, worker in enumerate(group.workers):
            if worker.pipe in readable and (content := os.read(worker.pipe, 2**16)):
                last_heartbeat[k] = now
                tick = content.split()[-1].decode()
                if ticks.get(k) != tick:
                    ticks[k], last_tick = tick, max(now, last_tick) if k not in ticks else now
        statuses = [worker.process.poll() for worker in group.workers]
        first = statuses[0]
        if (first or 0) > 0 and first != LOST:  # it has reported the error
            return None
        if None not in statuses:
            return find_fault(group, statuses)
        if first is not None or any(statuses):
            first_end = now if first_end is None else first_end
            killed = any(status is not None and status < 0 for status in statuses)
            if killed or now - first_end > (ERROR_TIMEOUT if first is None else EXIT_TIMEOUT):
                return find_fault(group, statuses)
        for k, status in enumerate(statuses):
            if status is None and now - last_heartbeat[k] > heartbeat:
                return f"process {k} sent no heartbeat for {heartbeat:g} s"
        if now - last_tick > patience:
            return f"no rounds were done for {patience:g} s"
        if not readable or any(status is not None for status in statuses):
            time.sleep(0.02)


def find_fault(group: ProcessGroup, statuses: Sequence[int | None]) -> str | None:
    """Which process failed: preferably one that was killed, last one that only lost another; None if none did.

    Args:
        group: the processes.
        statuses: their exit statuses; None for those that still run.
    """
    from lur.parallel.processes import LOST

    first = statuses[0]
    killed = [k for k, status in enumerate(statuses) if status is not None and status < 0]
    if first == 0:
        running = [str(k) for k, status in enumerate(statuses) if status is None]
        return f"process 0 has ended, but process {', '.join(running)} has not" if running else None
    for k in killed:
        return f"process {k} was killed by {signal.Signals(-(statuses[k] or 0)).name}"
    bad = [k for k, status in enumerate(statuses) if status not in (None, 0, LOST)]
    for k in bad:
        return f"process {k} ended with status {statuses[k]}{_last_error_line(group.workers[k])}"
    lost = [k for k, status in enumerate(statuses) if status == LOST]
    return f"process {lost[0]} lost another process{_last_error_line(group.workers[lost[0]])}"


def _last_error_line(worker: Worker) -> str:
    """The last line that a process wrote to its standard error, in parentheses."""
    if worker.errors is None:
        return ""
    worker.errors.seek(0)
    lines = worker.errors.read().decode(errors="replace").strip().splitlines()
    return f" ({lines[-1][:300]})" if lines else ""
