"""The command line's manners: help, nearest names, JSON, colours, completion, doctor."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lur.cli import arguments, doctor, output, overview
from lur.cli.commands import COMMANDS

LUR = [sys.executable, "-c", "import sys; from lur.cli import main; sys.exit(main())"]


def leaves(commands, prefix=()):
    """All commands with their names, those of groups after the group's."""
    for name, command in commands.items():
        if isinstance(command, Mapping):
            yield from leaves(command, (*prefix, name))
        else:
            yield (*prefix, name), command


LEAVES = [*leaves(COMMANDS)]


def test_nothing_asked_says_what_to_do_first(lur):
    status, out, err = lur()
    assert (status, err) == (0, "")
    assert "Start here:" in out
    assert "lur verify" in out
    assert len(out.splitlines()) < 12


def test_help_is_one_screen_in_groups_with_an_example_each(lur):
    status, out, _ = lur("--help")
    assert status == 0
    assert len(out.splitlines()) < 60
    assert all(len(line) <= 100 for line in out.splitlines())
    assert next(line for line in out.splitlines() if re.fullmatch(r"[a-z].*:", line)) == "theory:"
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\n +lur {name}", out, flags=re.MULTILINE), name
    assert lur("data")[1] == lur("data", "--help")[1]
    assert lur("--version")[1].startswith("lur 0")


@pytest.mark.parametrize(("names", "command"), LEAVES, ids=[" ".join(names) for names, _ in LEAVES])
def test_every_example_is_understood(names, command):
    line = overview.command_summary(names[-1], command)
    words = line.example.split()
    assert tuple(words[1 : 1 + len(names)]) == names, line
    arguments.parse_call(command, " ".join(["lur", *names]), words[1 + len(names) :])


def test_help_does_not_wait_for_jax():
    commands = "run_command(['--help']); run_command([])"
    code = f"import sys; from lur.cli import run_command; {commands}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command lur trian; did you mean train? (lur --help lists them)"),
        (["data", "shw"], "unknown command lur data shw; did you mean show? (lur data --help lists them)"),
        (["train", "digits", "--roundss", "5"], "unknown flag --roundss of lur train; did you mean --rounds?"),
        (["sweep", "digits", "--client_rl=1"], "unknown flag --client-rl of lur sweep; did you mean --client-lr?"),
        (["train", "digts"], "got 'digts'; did you mean digits?"),
        (["verify", "--claim", "T111"], "got 'T111'; did you mean T1"),
        (["reproduce", "fig22"], "table6, table7, got 'fig22'; did you mean fig2?"),
        (
            ["train", "digits", "--server", "yogy"],
            "server must be one of sgd, momentum, nesterov, adagrad, adam, yogi, got 'yogy'; did you mean yogi",
        ),
        (["predict", "two-client"], "got 'two-client'; did you mean two-clients?"),
        (["data", "show", "femnst"], "got 'femnst'; did you mean femnist?"),
        (["train", "digits", "--rounds", "many"], "--rounds must be an integer, got 'many'"),
        (["bench"], "Missing from lur bench"),
        (["train", "digits", "femnist"], "Unrecognized options: femnist (lur train --help explains)"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_name(lur, arguments, message):
    status, out, err = lur(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["doctor", "--json"], ["doctor", "--json", "-"]),
        (["train", "--json", "digits"], ["train", "--json", "-", "digits"]),
        (["train", "--json", "--quiet"], ["train", "--json", "-", "--quiet"]),
        (["verify", "--json", "r.json"], ["verify", "--json", "r.json"]),
        (["verify", "--json", "-", "--quiet"], ["verify", "--json", "-", "--quiet"]),
        (["launch", "--", "train", "--json"], ["launch", "--", "train", "--json"]),
    ],
)
def test_json_without_a_file_is_standard_output(given, meant):
    assert output.complete_json_flag(given) == meant


SMALL = ("--rounds", "4", "--clients", "6", "--clients-per-round", "3")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("verify", "--claim", "L5"), lambda v: v["claims"][0]["verdict"] == "FALSE"),
        (("verify", "--list"), lambda v: len(v) > 90 and v[0]["id"] == "D1"),
        (("predict", "--runs", "0", "--rounds", "3"), lambda v: len(v["exact"]) == 4 and v["long_run"] > 0),
        (("methods",), lambda v: v["fedavg"]["options"][:3] == ["local_steps", "theta", "server"]),
        (("config", "digits"), lambda v: v["task"] == "digits" and v["theta"] == "1:10"),
        (("data", "list"), lambda v: "leaf" in v["formats"]),
        (("doctor",), lambda v: v["jax"]["backend"] and v["folders"]["cache"]["writable"]),
        (("train", "quadratic", *SMALL), lambda v: v["state"] == "finished" and v["evaluation"]["loss"] > 0),
        (
            ("train", "quadratic", *SMALL, "--client-lr", "1e9", "--loss-limit", "10"),
            lambda v: v["state"] == "diverged" and v["evaluation"] is None,
        ),
        (
            ("sweep", "quadratic", *SMALL, "--client-lr", "0.1,1e9", "--server-lr", "0.1"),
            lambda v: [cell["diverged"] is None for cell in v["cells"]] == [True, False],
        ),
        (
            ("tune", "quadratic", *SMALL, "--client-lr", "0.1", "--server-lr", "0.1,0.3"),
            lambda v: v[0]["eta"] in (0.1, 0.3),
        ),
        (
            ("decay", "quadratic", *SMALL, "--client-lr", "0.1", "--server-lr", "0.3"),
            lambda v: v["server_lr"] == 0.3,
        ),
        (("bench", "speed", "--rounds", "2", "--turns", "1"), lambda v: v["python"] > 0),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_json_is_all_there_is_on_standard_output(lur, arguments, says):
    _, out, _ = lur(*arguments, "--json")
    assert says(json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")))


def test_json_of_what_json_has_no_word_for():
    import numpy as np

    assert output.to_json({"a": np.array([1.0, np.nan]), "b": Path("x"), "c": np.float32(0.5), "d": (True, None)}) == {
        "a": [1.0, None], "b": "x", "c": 0.5, "d": [True, None]
    }  # fmt: skip


def test_quiet_is_quiet(lur):
    assert lur("train", "quadratic", *SMALL, "--quiet") == (0, "", "")
    assert lur("doctor", "--quiet") == (0, "", "")


def on_a_terminal(*arguments, **environment):
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*LUR, *arguments], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **environment}
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the terminal is gone with the process
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    return said.decode()


def test_colours_on_a_terminal_only():
    assert "\x1b[1m" in on_a_terminal("train", "--help")
    assert "\x1b" not in on_a_terminal("train", "--help", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("train", "--help", TERM="dumb")
    plain = on_a_terminal("verify", "--claim", "E2", NO_COLOR="1")
    assert "HOLDS" in plain
    assert not re.search(r"\x1b\[([0-9]+;)*[349][0-7]m", plain)
    piped = subprocess.run(
        [*LUR, "train", "quadratic", *SMALL], capture_output=True, env={**os.environ, "FORCE_COLOR": "1"}, check=True
    )
    assert b"\x1b" not in piped.stdout + piped.stderr


def test_bash_completes_commands_and_flags(tmp_path):
    script = tmp_path / "lur.bash"
    done = subprocess.run([*LUR, "completion", "bash"], capture_output=True, text=True, check=True)
    script.write_text(done.stdout)
    ask = """
    source "$1"; shift
    COMP_WORDS=(lur "$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    function_name=$(complete -p lur | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    "$function_name"; printf '%s\\n' "${COMPREPLY[@]}"
    """

    def completed(*words):
        found = subprocess.run(["bash", "-c", ask, "bash", script, *words], capture_output=True, text=True, check=True)
        return [word.strip() for word in found.stdout.splitlines()]

    assert completed("tr") == ["train"]
    assert completed("train", "--client-l") == ["--client-lr"]
    assert completed("data", "sh") == ["show"]
    assert {*completed("reproduce", "fig1", "--scale", "s")} == {"small", "smoke"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_completion(shell, lur, tmp_path):
    out = lur("completion", shell)[1]
    assert "lur" in out
    assert "--client-lr" in out
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(out)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_doctor_sees_hardware_that_jax_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "nvidia_names", list)
    assert doctor.accelerators(tmp_path, {}) == []
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "accel0"):
        (tmp_path / "dev" / name).touch()
    gpu, tpu = doctor.accelerators(tmp_path, {"TPU_NAME": "local"})
    assert gpu == ("gpu", (str(tmp_path / "dev/nvidia0"),))
    assert tpu == ("tpu", (str(tmp_path / "dev/accel0"), "TPU_NAME"))
    fine = {name: {"path": name, "writable": True} for name in ("cache", "here")}
    on_cpu = doctor.advice({"backend": "cpu"}, [gpu, tpu], fine)
    assert "jax[cuda13]" in on_cpu[0]
    assert "jax[tpu]" in on_cpu[1]
    assert doctor.advice({"backend": "gpu"}, [gpu], fine) == []
    assert doctor.advice({"backend": "tpu"}, [tpu], fine) == []
    fine["cache"]["writable"] = False
    assert doctor.advice({"error": "no"}, [], fine) == [
        "JAX does not start: no", "cache cannot be written: set LUR_CACHE to a writable folder"
    ]  # fmt: skip


def test_doctor_asks_nvidia_smi(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-1)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert doctor.nvidia_names() == ["GPU 0: NVIDIA L4 (UUID: GPU-1)"]
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert doctor.nvidia_names() == []


def test_doctor_survives_a_jax_that_does_not(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "no_such_platform")
    found = doctor.jax_devices()
    assert "no_such_platform" in found["error"]
