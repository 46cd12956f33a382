"""Looks whether the head of a Ray cluster answers at an address. Ray itself tries for three minutes, and then does not say why."""

import os
import re
import socket
import threading

from runner.core.diagnostics import UsageError

ANSWER_SECONDS = 8.0
"""How long a head may take to answer, the resolution of its name included."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What each client of HTTP/2 sends first: a head speaks gRPC, which is HTTP/2."""
_FRAME_HEADER = 9
_SETTINGS = 4
_HOW = "start a head with 'ray start --head --port=6379', and write --address HOST:PORT as it prints it"


def require_head(address: str) -> None:
    """Raise ``UsageError`` for a text that is no address, or where no head answers in time."""
    host, port = host_and_port(address)
    found: list[str] = []
    looking = threading.Thread(target=lambda: found.append(_problem(host, port)), daemon=True)  # the resolver has no time limit
    looking.start()
    looking.join(ANSWER_SECONDS)
    problem = found[0] if found else f"no Ray cluster answers (no answer within {ANSWER_SECONDS:g} s)"
    if problem:
        raise UsageError(f"--address {address}: {problem}; {_HOW}")


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address; raise ``UsageError``."""
    if "://" in address:
        shown = re.sub(r"//.*@", "//", address)
        raise UsageError(f"--address {shown[:60]}: a URL, as for a client of Ray or its dashboard (write --address HOST:PORT; {_HOW})")
    host, sign, port = address.rpartition(":")
    if not sign or not host:
        raise UsageError(f"--address {address[:60]}: no host and port (write --address HOST:PORT, for example 127.0.0.1:6379; {_HOW})")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise UsageError(f"--address {address[:60]}: '{port[:20]}' is no port (a number from 1 to 65535; write --address HOST:PORT)")
    return host.removeprefix("[").removesuffix("]"), int(port)


def answers_as_http2(connection: socket.socket) -> bool:
    """Greet a server of HTTP/2, and return whether it answers as one: with its settings."""
    connection.sendall(_PREFACE)
    answer = b""
    while len(answer) < _FRAME_HEADER and (data := connection.recv(_FRAME_HEADER - len(answer))):
        answer += data
    return len(answer) == _FRAME_HEADER and answer[3] == _SETTINGS and not any(answer[5:])


def _problem(host: str, port: int) -> str:
    """Return why nothing of Ray answers there, or nothing."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true") or answers_as_http2(connection):
                return ""
    except (socket.gaierror, UnicodeError) as error:
        return f"no host of this name ({getattr(error, 'strerror', '') or error})"
    except TimeoutError:
        return f"no Ray cluster answers (no answer within {ANSWER_SECONDS:g} s)"
    except ConnectionResetError:
        pass
    except OSError as error:
        return f"no Ray cluster answers ({error.strerror or error})"
    return "what listens there is no head of a Ray cluster"
