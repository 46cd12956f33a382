"""Servers for cases: what ``--service`` may name, the protocol, and the process between a client and a server."""

import importlib.util
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runner.core.diagnostics import UsageError
from runner.core.observation import ServiceReport
from runner.core.protocol import SERVICES_FILE
from runner.execute.services import Address, Services, named_servers, reach
from runner.execute.services.resp import Broken, read_reply, read_request, request

redis = pytest.importorskip("redis", reason="the client is not installed: pip install redis fakeredis")
if importlib.util.find_spec("fakeredis") is None:  # not imported: that costs each worker of the tests half a second
    pytest.skip("the embedded server is not installed: pip install redis fakeredis", allow_module_level=True)

KEY = "pt2:a-cache::key:c1"
"""A key of the form that torch's remote caches give theirs."""


# -- what the command line names ------------------------------------------------------------------------------------


def test_addresses() -> None:
    assert named_servers([]) == {}
    assert named_servers(["redis=localhost:6379"]) == {"redis": Address("localhost", 6379)}
    assert named_servers(["redis=[::1]:1"]) == {"redis": Address("::1", 1)}
    assert str(Address("::1", 1)) == "[::1]:1"
    assert str(Address("localhost", 65_535)) == "localhost:65535"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["redis"], "--service redis: no '=' in it (write redis=HOST:PORT)"),
        (["rediss=localhost:1"], "--service: unknown service 'rediss' (did you mean 'redis'?)"),
        (["redis=localhost"], "--service redis=localhost: no host and port (write redis=HOST:PORT, for example redis=localhost:6379)"),
        (["redis=:6379"], "--service redis=:6379: no host and port (write redis=HOST:PORT, for example redis=localhost:6379)"),
        (["redis=localhost:"], "--service redis=localhost:: '' is no port (a number from 1 to 65535)"),
        (["redis=localhost:0"], "--service redis=localhost:0: '0' is no port (a number from 1 to 65535)"),
        (["redis=localhost:65536"], "--service redis=localhost:65536: '65536' is no port (a number from 1 to 65535)"),
        (["redis=localhost:six"], "--service redis=localhost:six: 'six' is no port (a number from 1 to 65535)"),
        (["redis=localhost:٣"], "--service redis=localhost:٣: '٣' is no port (a number from 1 to 65535)"),
        (["redis=a:1", "redis=b:1"], "--service redis is given twice (a case talks to one server)"),
    ],
)
def test_what_is_no_address(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_servers(texts)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["redis=redis://:hunter2@localhost:6379", "redis=user:hunter2@localhost:6379"])
def test_a_password_is_not_shown_again(text: str) -> None:
    with pytest.raises(UsageError, match="a server with a password is not supported") as caught:
        named_servers([text])
    assert "hunter2" not in str(caught.value)


def listener(answer: bytes) -> socket.socket:
    """Return a server for one client, who gets the answer whatever it says."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what listens there is no Redis server"),
        (b"", "what listens there is no Redis server"),
        (b"-NOAUTH Authentication required.\r\n", "it requires a password (name one without, on this machine)"),
        (b"-DENIED Redis is running in protected mode\r\n", "it requires a password (name one without, on this machine)"),
    ],
)
def test_what_answers_and_is_of_no_use(answer: bytes, message: str) -> None:
    with closing(listener(answer)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            reach({"redis": Address("127.0.0.1", port)})
    assert str(caught.value) == f"--service redis=127.0.0.1:{port}: {message}"


def test_a_port_where_nobody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    with pytest.raises(UsageError, match=f"redis=127.0.0.1:{port}: cannot be reached: Connection refused"):
        reach({"redis": Address("127.0.0.1", port)})


def test_one_that_answers_is_reached() -> None:
    with closing(listener(b"+PONG\r\n")) as server:
        reach({"redis": Address("127.0.0.1", server.getsockname()[1])})


# -- the protocol ---------------------------------------------------------------------------------------------------


def test_a_request_is_read_as_it_was_written() -> None:
    words = [b"SET", b"key", b"a\r\nb\0\xff" * 1000, b""]
    stream = io.BytesIO(request(words) + request([b"PING"]))
    assert [read_request(stream), read_request(stream), read_request(stream)] == [words, [b"PING"], None]


@pytest.mark.parametrize(
    "data",
    [
        b"PING\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$5\r\nPI",
        b"*1\r\n$4\r\nPING",
        b"*2\r\n$4\r\nPING\r\n",
        b"*-1\r\n",
        b"*x\r\n",
        b"*9999999\r\n",
        b"*1\r\n$11\r\nhello world\r\n",
        b"*1" + b"0" * 1000,
    ],
)
def test_a_request_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(Broken):
        read_request(io.BytesIO(data), most=10)


@pytest.mark.parametrize(
    "reply",
    [
        *(b"+OK\r\n", b"+" + b"x" * 100_000 + b"\r\n", b"-ERR no\r\n", b":1\r\n", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n"),
        *(b"$0\r\n\r\n", b"$6\r\na\r\nb\r\n\r\n", b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", b"%1\r\n+a\r\n~1\r\n:1\r\n", b"*0\r\n"),
    ],
)
def test_a_reply_is_read_whole_and_no_further(reply: bytes) -> None:
    stream = io.BytesIO(reply + b"+NEXT\r\n")
    assert (read_reply(stream), stream.read()) == (reply, b"+NEXT\r\n")
    with pytest.raises(Broken):
        read_reply(io.BytesIO(reply[:-1]))


@pytest.mark.parametrize("reply", [b"", b"?1\r\n", b"$x\r\n", b"*1\r\n" * 50 + b":1\r\n"])
def test_a_reply_that_is_none_is_refused(reply: bytes) -> None:
    with pytest.raises(Broken):
        read_reply(io.BytesIO(reply))


# -- the process ----------------------------------------------------------------------------------------------------


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services({}, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a case with a server, for tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("served")
    made = Services({}, folder)
    made.start("case", folder)
    yield folder
    made.close()


def url_of(folder: Path) -> str:
    where = json.loads((folder / SERVICES_FILE).read_bytes())["redis"]
    assert where["tag"].startswith("torch-conformance:")
    return str(where["url"])


def client(url: str, **options: Any) -> Any:
    return redis.Redis.from_url(url, **options)


def test_a_case_has_a_server_of_its_own_that_counts(services: Services, tmp_path: Path) -> None:
    services.announce(2)
    for case in ("first", "second"):
        services.start(case, tmp_path / case)
        services.start(case, tmp_path / case)  # a case that gets another worker keeps its server
    first, second = (client(url_of(tmp_path / case)) for case in ("first", "second"))
    value = bytes(range(256)) + b"x" * (16 << 20)  # larger than any socket's buffer
    assert first.get(KEY) is None
    assert first.set(KEY, value) is True
    assert first.get(KEY) == value
    assert second.get(KEY) is None, "it is the other case's"
    assert services.stop("first") == ServiceReport(name="redis", answered={"GET": 2, "SET": 1})
    assert services.stop("second") == ServiceReport(name="redis", answered={"GET": 1})
    with pytest.raises(redis.exceptions.ConnectionError):
        first.get(KEY)


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_versions_of_the_protocol(services: Services, tmp_path: Path, protocol: int) -> None:
    services.start("case", tmp_path)
    with client(url_of(tmp_path), protocol=protocol) as connected:
        assert connected.ping() is True
        assert (connected.get(KEY), connected.set(KEY, b"1"), connected.get(KEY)) == (None, True, b"1")
    assert services.stop("case").answered == {"GET": 2, "SET": 1}


def test_a_case_without_traffic(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    assert client(url_of(tmp_path)).ping() is True
    assert services.stop("case") == ServiceReport(name="redis"), "a handshake is no traffic"


def test_keys_of_another_form_are_counted_apart(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    case = client(url_of(tmp_path))
    for key in (KEY, "key", "pt2:a-cache::key", "pt2::key:c1", f"x{KEY}", "pt2:autotune::a\nb:c1"):
        case.set(key, b"1")
    assert services.stop("case") == ServiceReport(name="redis", answered={"SET": 2}, foreign=4)


def test_only_who_knows_the_password_is_served(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    url = url_of(tmp_path)
    place = url.rpartition("@")[2]
    with pytest.raises(redis.exceptions.AuthenticationError):
        client(f"redis://{place}").get(KEY)
    for protocol in (2, 3):
        with pytest.raises(redis.exceptions.AuthenticationError):
            client(f"redis://:wrong@{place}", protocol=protocol).set(KEY, b"evil")
    with socket.create_connection(("127.0.0.1", int(place.split(":")[1].split("/")[0])), timeout=60) as stranger:
        stranger.sendall(request([b"SET", KEY.encode(), b"x" * 5000]))
        assert stranger.recv(100) == b"", "nobody holds memory here who has not said the password"
    assert client(url).get(KEY) is None
    assert services.stop("case").answered == {"GET": 1}


def test_the_address_of_a_server_is_for_the_user_alone(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    assert (tmp_path / SERVICES_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "call",
    [
        lambda connected: connected.flushall(),
        lambda connected: connected.flushdb(),
        lambda connected: connected.config_set("save", ""),
        lambda connected: connected.keys("*"),
        lambda connected: connected.delete(KEY),
        lambda connected: connected.shutdown(),
        lambda connected: connected.set(KEY, b"1", ex=1),
        lambda connected: connected.client_kill("1.1.1.1:1"),
    ],
)
def test_what_no_cache_needs_is_not_let_through(served: Path, call: Callable[[Any], Any]) -> None:
    connected = client(url_of(served))
    connected.set(KEY, b"1")
    with pytest.raises(redis.exceptions.ResponseError, match="not let through"):
        call(connected)
    assert connected.get(KEY) == b"1"


def test_a_server_that_died_is_a_problem(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    services._running["case"].process.kill()
    report = services.stop("case")
    assert report == ServiceReport(name="redis", problem="its server ended before the case did")


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fakeredis.py").write_text("raise ImportError('broken package')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    services = Services({}, tmp_path)
    services.start("case", tmp_path / "case")
    assert not (tmp_path / "case" / SERVICES_FILE).exists()
    assert services.stop("case").problem == "its server ended before the case did: ImportError: broken package"


def test_a_server_that_was_killed_before_its_case_is_replaced(services: Services, tmp_path: Path) -> None:
    services.announce(1)
    assert services._spare is not None
    services._spare.process.kill()
    services._spare.process.wait(timeout=60)
    services.start("case", tmp_path)
    assert client(url_of(tmp_path)).get(KEY) is None
    assert services.stop("case") == ServiceReport(name="redis", answered={"GET": 1})


def test_a_server_ends_when_the_runner_does(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    process = services._running["case"].process
    assert process.stdin is not None
    process.stdin.close()  # what the system does for a runner that was killed
    assert process.wait(timeout=60) == 0


def test_closing_ends_every_server(tmp_path: Path) -> None:
    services = Services({}, tmp_path)
    services.announce(3)
    services.start("case", tmp_path)
    assert services._spare is not None
    processes = [services._running["case"].process, services._spare.process]
    services.close()
    assert [process.poll() is not None for process in processes] == [True, True]
    services.close()


# -- a server that is not ours --------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    """A server that was there before, with somebody's keys."""
    import fakeredis

    server = fakeredis.TcpFakeServer(("127.0.0.1", 0))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with redis.Redis(port=server.server_address[1]) as connected:
        connected.set("pt2:somebody's", b"graph")
        yield server
    server.shutdown()
    server.server_close()


def test_a_named_server_keeps_its_keys_and_loses_ours(elsewhere: Any, tmp_path: Path) -> None:
    port = elsewhere.server_address[1]
    services = Services({"redis": Address("127.0.0.1", port)}, tmp_path)
    services.start("case", tmp_path)
    case, owner = client(url_of(tmp_path)), redis.Redis(port=port)
    assert case.get("pt2:somebody's") is None, "what others left is not executed here"
    for number in range(250):
        case.set(f"pt2:{number}", b"ours")
    case.set("pt2:somebody's", b"ours")
    assert len(owner.keys("torch-conformance:*")) == 251
    assert all(0 < owner.ttl(key) <= 86_400 for key in owner.keys("torch-conformance:*")), "a killed run leaves nothing for ever"
    report = services.stop("case")
    assert report == ServiceReport(name="redis", foreign=252), "none of these keys has torch's form"
    assert owner.keys("*") == [b"pt2:somebody's"]
    assert owner.get("pt2:somebody's") == b"graph"
    assert services.warnings == []


def test_a_named_server_that_goes_away_is_a_problem(elsewhere: Any, tmp_path: Path) -> None:
    services = Services({"redis": Address("127.0.0.1", elsewhere.server_address[1])}, tmp_path)
    services.start("case", tmp_path)
    case = client(url_of(tmp_path), retry=None)
    case.set(KEY, b"1")
    elsewhere.shutdown()
    elsewhere.server_close()
    with pytest.raises(redis.exceptions.ConnectionError):
        client(url_of(tmp_path), retry=None).get(KEY)
    report = services.stop("case")
    assert report.problem.startswith("the server did not answer: ")
    assert (report.left, report.answered) == (1, {"SET": 1})
    assert services.warnings == [f"keys that case left on 127.0.0.1:{elsewhere.server_address[1]}: 1 (they expire after a day)"]
