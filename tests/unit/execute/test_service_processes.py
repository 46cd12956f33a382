"""Servers for cases: the protocol, and the process that a client talks to."""

import io
import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from torch_conformance.execute.redis_service import Broken, Services, read_request
from torch_conformance.model.case_facts import ServiceReport
from torch_conformance.model.protocol import SERVICES_FILE

redis = pytest.importorskip("redis", reason="the client is not installed: pip install redis")

KEY = "pt2:a-cache::key:c1"
"""A key of the form that torch's remote caches give theirs."""


def request(words: Sequence[bytes]) -> bytes:
    """Return a request as it goes over the wire."""
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in words
    )


# -- the protocol ----------------------------------------------------------------------------------


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


# -- the process -----------------------------------------------------------------------------------


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path)
    yield made
    made.close()


def url_of(folder: Path) -> str:
    where = json.loads((folder / SERVICES_FILE).read_bytes())["redis"]
    return str(where["url"])


def client(url: str, **options: Any) -> Any:
    return redis.Redis.from_url(url, **options)


def test_a_case_has_a_server_of_its_own_that_counts(services: Services, tmp_path: Path) -> None:
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
    with socket.create_connection(
        ("127.0.0.1", int(place.split(":")[1].split("/")[0])), timeout=60
    ) as stranger:
        stranger.sendall(request([b"SET", KEY.encode(), b"x" * 5000]))
        assert stranger.recv(100) == b"", "nobody holds memory here who has not said the password"
    assert client(url).get(KEY) is None
    assert services.stop("case").answered == {"GET": 1}


def test_the_address_of_a_server_is_for_the_user_alone(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    assert (tmp_path / SERVICES_FILE).stat().st_mode & 0o777 == 0o600


def test_what_no_cache_needs_is_refused(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    connected = client(url_of(tmp_path))
    for call in (
        connected.flushall,
        lambda: connected.delete(KEY),
        lambda: connected.set(KEY, b"1", ex=1),
        lambda: connected.keys("*"),
    ):
        with pytest.raises(
            redis.exceptions.ResponseError, match="this server knows GET key and SET key value"
        ):
            call()
    assert services.stop("case") == ServiceReport(name="redis")


def test_a_server_that_died_is_a_problem(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    services.running["case"].kill()
    report = services.stop("case")
    assert report == ServiceReport(name="redis", problem="its server ended before the case did")


def test_a_server_ends_when_the_runner_does(services: Services, tmp_path: Path) -> None:
    services.start("case", tmp_path)
    process = services.running["case"]
    assert process.stdin is not None
    process.stdin.close()  # what the system does for a runner that was killed
    assert process.wait(timeout=60) == 0


def test_closing_ends_every_server(tmp_path: Path) -> None:
    services = Services(tmp_path)
    services.start("case", tmp_path)
    process = services.running["case"]
    services.close()
    assert process.poll() is not None
    services.close()
