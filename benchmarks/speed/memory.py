"""Peak memory of a process and its descendants, from Linux's /proc."""

from pathlib import Path

PROC = Path("/proc")


def status(pid: int) -> dict[str, str]:
    """The fields of /proc/<pid>/status; empty if the process has ended."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def peak_memory(pid: int) -> int | None:
    """Sum of the peak memory of a process and its descendants in bytes, shared pages counted in each.

    None if the process has ended or the system has no /proc.
    """
    if "VmHWM" not in status(pid):
        return None
    entries = {int(entry.name): status(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit()}
    family = {pid}
    while children := {p for p, s in entries.items() if p not in family and int(s.get("PPid", 0)) in family}:
        family |= children
    return sum(1024 * int(entries[p]["VmHWM"].split()[0]) for p in family if "VmHWM" in entries.get(p, {}))
