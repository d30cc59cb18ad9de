"""Processes that meet before `jax.distributed` connects them: who fits together, and the words if they do not."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lur.parallel.rendezvous import Guest, find_misfit, meet, parse_address


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def outcome(address, process, processes, seconds=2.0, is_local=False):
    """The words of the error, or an empty string; process 0 then listens as jax.distributed would."""
    try:
        meet(address, process, processes, seconds, is_local=is_local)
    except ConnectionError as error:
        return str(error)
    if process == 0:
        with socket.create_server(parse_address(address)) as server:
            server.settimeout(10)
            for _ in range(processes - 1):
                server.accept()[0].close()
    return ""


def outcomes(places, seconds=2.0, is_local=False):
    address = free_address()
    with ThreadPoolExecutor(len(places)) as pool:
        return [*pool.map(lambda place: outcome(address, *place, seconds, is_local), places)]


@pytest.mark.parametrize("is_local", [False, True])
def test_processes_that_fit_together_meet(is_local):
    assert outcomes([(2, 3), (0, 3), (1, 3)], 30.0, is_local) == ["", "", ""]


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ([(0, 2), (1, 3)], "got 2 in process 0 and 3 in process 1"),
        ([(0, 3), (1, 3), (1, 3)], "got two with 1"),
        ([(0, 3), (1, 3)], "process 2 did not connect to process 0 at 127.0.0.1:"),
        ([(1, 2)], "nothing answered within 1 s"),
    ],
)
def test_each_process_learns_why_they_do_not_fit_together(places, says):
    for error in outcomes(places, 1.0):
        assert says in error


@pytest.mark.parametrize("is_local", [False, True])
def test_two_processes_0_cannot_listen_at_one_address(is_local):
    address = free_address()
    with socket.create_server(parse_address(address)):
        assert outcome(address, 0, 2, is_local=is_local) == (
            f"process 0 cannot listen at {address}, where the coordinator must be: Address already in use"
        )


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b'{"fault": null}\n', b"[1]\n", b"", b"\xff" * 9000]
)
def test_another_program_at_the_address(answer):
    address = free_address()
    with socket.create_server(parse_address(address)) as server:

        def serve():
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(answer)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        assert "what listens there is another program" in outcome(address, 1, 2)
        thread.join()


@pytest.mark.parametrize("content", [b"GET / HTTP/1.1\r\n\n", b'{"greeting": "lur rendezvous", "guest": [1]}\n', b""])
def test_a_stranger_that_connects_to_process_0_is_ignored(content):
    address = free_address()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(outcome, address, 0, 2, 30.0)
        while True:
            try:
                with socket.create_connection(parse_address(address)) as stranger:
                    stranger.sendall(content)
                    break
            except ConnectionRefusedError:
                continue
        assert outcome(address, 1, 2, 30.0) == ""
        assert first.result() == ""


def test_a_host_without_an_address():
    with pytest.raises(ConnectionError, match=r"cannot resolve the coordinator's host 'no\.such\.host\.invalid'"):
        meet("no.such.host.invalid:1234", 1, 2, 1.0)


@pytest.mark.parametrize("address", ["", "host", "host:", ":12", "host:port", "host:0", "host:70000", "host:²"])
def test_what_is_no_address(address):
    with pytest.raises(ValueError, match=r"must be a host and a port, such as host:1234, got "):
        parse_address(address)


def test_addresses():
    assert parse_address("[::1]:12") == ("::1", 12)
    assert find_misfit([Guest(2, 3), Guest(1, 3)], 3) is None
    assert "got two with 0" in str(find_misfit([Guest(0, 3)], 3))
