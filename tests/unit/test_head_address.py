"""Runs on a fleet that do not begin: at ``--address`` no head answers, or the run was killed before its nodes answered."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.execute.ray import head
from runner.run.fleet import options as fleet_options
from tests.fleet_runs import spec_of

LIMIT = 10.0
"""How many seconds a user waits for an answer, at the most."""
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """Listen, and give each client this answer when it said something; with ``None`` say nothing until the end."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    ended.wait(60)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()


def closed() -> str:
    """Return the address of a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def refusal(address: str) -> str:
    began = time.monotonic()
    with pytest.raises(UsageError) as caught:
        head.require_head(address)
    assert time.monotonic() - began < LIMIT
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("head", "--address head: no host and port"),
        (":6379", "--address :6379: no host and port"),
        ("auto", "--address auto: no host and port"),
        ("local", "--address local: no host and port"),
        ("head:", "--address head:: '' is no port (a number from 1 to 65535"),
        ("head:0", "--address head:0: '0' is no port"),
        ("head:65536", "--address head:65536: '65536' is no port"),
        ("head:٣", "--address head:٣: '٣' is no port"),
        ("ray://head:10001", "--address ray://head:10001: a URL, as for a client of Ray"),
        ("http://head:8265", "--address http://head:8265: a URL"),
    ],
)
def test_what_is_no_address(address: str, problem: str) -> None:
    found = refusal(address)
    assert found.startswith(problem)
    assert "(write " in found or "write --address HOST:PORT" in found


def test_a_password_in_a_url_is_not_shown() -> None:
    assert "hunter2" not in refusal("http://user:hunter2@head:1")


def test_nothing_listens() -> None:
    address = closed()
    found = refusal(address)
    assert found.startswith(f"--address {address}: no Ray cluster answers (Connection refused)")
    assert "ray start --head" in found


def test_a_name_that_does_not_resolve() -> None:
    found = refusal("no-such-host.invalid:6379")
    assert found.startswith("--address no-such-host.invalid:6379: no host of this name")
    assert "ray start --head" in found


def test_a_resolver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def resolve(*_: object, **__: object) -> None:
        ended.wait(30)
        raise OSError

    monkeypatch.setattr(head, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(socket, "create_connection", resolve)
    assert "no answer within 0.3 s" in refusal("head:6379")
    ended.set()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"+OK\r\n", b"-ERR unknown command 'PRI'\r\n"])
def test_something_else_listens(answer: bytes) -> None:
    with server(answer) as address:
        found = refusal(address)
    assert found.startswith(f"--address {address}: what listens there is no head of a Ray cluster")
    assert "ray start --head" in found


def test_what_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "ANSWER_SECONDS", 0.5)
    with server(None) as address:
        assert "no answer within 0.5 s" in refusal(address)


def test_what_speaks_as_a_head_does() -> None:
    with server(SETTINGS) as address:
        head.require_head(address)


def test_an_answer_in_parts() -> None:
    first, second = socket.socketpair()
    with first, second:

        def write() -> None:
            second.sendall(SETTINGS[:2])
            time.sleep(0.1)
            second.sendall(SETTINGS[2:])

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        assert head.answers_as_http2(first)
        thread.join(10)


def test_with_tls_only_the_connection_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with server(b"\x15\x03\x03\x00\x02\x02\x46") as address:
        head.require_head(address)


def test_a_run_is_refused_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fleet_options, "require_ray", lambda: None)
    began = time.monotonic()
    assert main(["run", "spec.yaml", "--executor", "ray", "--address", closed(), "--out", "out"]) == ExitCode.USAGE
    assert time.monotonic() - began < LIMIT
    assert "no Ray cluster answers" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_killed_before_its_first_line_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run on a fleet writes its header when its nodes have answered; a kill before that leaves an empty journal."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(spec_of(1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.jsonl").touch()
    assert main(["run", "spec.yaml", "--resume", "out"]) == ExitCode.USAGE
    assert "ended before anything was recorded; write the same command with --out out in place of --resume" in capsys.readouterr().err
