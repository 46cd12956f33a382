"""The object cache: serves outputs of the C++ compiler from a folder. It lies below torch's own caches, so all code of torch still runs.

The cache is off unless the run enables it. The key of an entry covers the command with its paths replaced by placeholders, the content of
the files that it names, the compiler and torch. An entry lists the headers that the compiler read, with their hashes; it is served only
while these are unchanged. A precompiled header is identified by its name alone, which torch derives from the preprocessed text.

A command of an unknown kind is run unchanged. So is every command of a process other than the one that called ``install``, because such a
process cannot report its counts.

A case can write to the folder. Hence the cache is for trusted specs only, and no conformance run uses it.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from runner.worker.toolchain import compiler
from runner.worker.torch_compat import compiling

_FORMAT = 1
_MOST_HEADER = 4 << 20
_MOST_OBJECT = 512 << 20
_CHUNK = 1 << 20

_TAKES_AN_ARGUMENT = frozenset(["-D", "-U", "-I", "-L", "-l", "-isystem", "-iquote", "-isysroot", "-Xclang"])
_REFUSED = (
    *("@", "-M", "-save-temps", "-fprofile", "-ftest-coverage", "--coverage", "-gsplit-dwarf", "-dump", "-specs", "-wrapper", "-fplugin"),
    *("-B", "-Wl,-Map", "-flto", "-fdump", "-ftime-trace", "-fstats"),
)
"""Prefixes of options with which a command reads or writes additional files."""

_CHANGING_WORDS = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__")
_CHANGING_VARIABLES = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "GCC_COMPARE_DEBUG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A parsed command of the compiler."""

    compiler: str
    words: tuple[str, ...]
    """The words after the compiler, with paths of files replaced by ``<input>``, ``<header>`` and ``<output>``."""
    inputs: tuple[str, ...]
    headers: tuple[str, ...]
    """The files of ``-include``."""
    output: str

    @property
    def compiles(self) -> bool:
        """Whether the command compiles; False where it only links objects."""
        return not all(path.endswith(".o") for path in self.inputs)

    @property
    def machine_flags(self) -> tuple[str, ...]:
        """The options that select the machine: those that begin with ``-m``."""
        return tuple(word for word in self.words if word.startswith("-m"))


def understood(command_line: str, folder: str, own: Sequence[str]) -> Command | None:
    """Parse a command that is run in ``folder``; return None for one of an unknown kind.

    ``own`` are the folders of the case. A command that uses them for anything but inputs, headers and the output is of an unknown kind.
    """
    try:
        program, *rest = shlex.split(command_line)
    except ValueError:
        return None
    if any(word.startswith(_REFUSED) for word in rest):
        return None
    words: list[str] = []
    inputs: list[str] = []
    headers: list[str] = []
    outputs: list[str] = []
    waiting = iter(rest)
    for word in waiting:
        places = {"-o": (outputs, "<output>"), "-include": (headers, "<header>")}
        if word in places:
            paths, stands = places[word]
            paths.append(os.path.join(folder, next(waiting, "")))
            words += [word, stands]
        elif word in _TAKES_AN_ARGUMENT or word == "-x":
            words += [word, next(waiting, "")]
        elif word.startswith("-"):
            words.append(word)
        else:
            inputs.append(os.path.join(folder, word))
            words.append("<input>")
    if len(outputs) != 1 or any(place in word for word in words for place in own):
        return None
    made = Command(compiler=program, words=tuple(words), inputs=tuple(inputs), headers=tuple(headers), output=outputs[0])
    return made if _is_known_kind(made) else None


def _is_known_kind(command: Command) -> bool:
    """Whether inductor builds kernels with such a command. Commands of ahead-of-time packages are not included."""
    output = os.path.basename(command.output)
    names = [os.path.basename(path) for path in command.inputs]
    if not names or any(os.path.basename(os.path.dirname(path)) != "precompiled_headers" for path in command.headers):
        return False
    if "-x" in command.words:
        return "c++-header" in command.words and names[0].endswith(".h") and [command.output] == [f"{path}.gch" for path in command.inputs]
    if "-E" in command.words:
        return names == ["header.hpp"] and "-P" in command.words and output == "header.i"
    if all(re.search(r"\.(main|optimized)\.o$", name) for name in names):
        return "-shared" in command.words and output.endswith(".so")
    is_source = len(names) == 1 and re.search(r"\.(main|optimized)\.cpp$", names[0]) is not None
    return is_source and output.endswith(".o" if "-c" in command.words else ".so")


def key_of(command: Command, made_by: tuple[str, ...], torch: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the key of a command's entry; None where its output may vary. Raise ``OSError`` where an input cannot be read."""
    if any(environ.get(name) for name in _CHANGING_VARIABLES):
        return None
    files: list[tuple[str, str]] = []
    for path in (*command.inputs, *command.headers):
        with open(path, "rb") as stream:
            content = stream.read()
        if not path.endswith(".o") and any(word in content for word in _CHANGING_WORDS):
            return None
        files.append((os.path.basename(path), hashlib.sha256(content).hexdigest()))
    suffix = os.path.splitext(command.output)[1]
    known = [_FORMAT, command.compiler, command.words, files, suffix, made_by, list(torch), compiler.variables(environ)]
    return compiler.digest(known)


def needs_of(text: str) -> list[str]:
    """Return the prerequisites of a rule for make, unescaped."""
    _, _, right = text.replace("\\\n", " ").partition(": ")
    names = re.findall(r"(?:\\.|[^\s\\])+", right)
    return [re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in names]


class Store:
    """A folder of entries. An entry is a line with the sha256 of the rest, a line of JSON, and the output itself."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._digests: dict[tuple[str, int, int, int], str] = {}

    def path(self, key: str) -> str:
        """Return the path of an entry's file."""
        return os.path.join(self._folder, key[:2], f"{key}.object")

    def serve(self, key: str, output: str) -> bool:
        """Copy an entry to ``output``; return False where there is no valid entry. A corrupt entry is deleted."""
        path = self.path(key)
        try:
            with compiler.open_ours(path) as stream:
                served = self._copy(stream, output)
        except FileNotFoundError:
            return False
        except (OSError, ValueError, TypeError, LookupError, AttributeError):  # a corrupt entry can raise any of these
            with contextlib.suppress(OSError):
                os.unlink(path)
            return False
        if served:
            with contextlib.suppress(OSError):
                os.utime(path)  # the least recently used entries are deleted first
        return served

    def _copy(self, stream: BinaryIO, output: str) -> bool:
        """Copy an entry; return False where its headers have changed. Raise ``ValueError`` for a corrupt entry."""
        expected = stream.readline(100).strip().decode("ascii")
        line = stream.readline(_MOST_HEADER)
        head = json.loads(line)
        if head["format"] != _FORMAT:
            raise ValueError("unknown format")
        if any(self.digest(path) != content for path, content in head["needs"].items()):
            return False
        temporary = f"{output}.{secrets.token_hex(8)}.part"
        seen = hashlib.sha256(line)
        try:
            with open(temporary, "xb") as target:
                while chunk := stream.read(_CHUNK):
                    seen.update(chunk)
                    target.write(chunk)
            if seen.hexdigest() != expected:
                raise ValueError("hash mismatch")
            os.chmod(temporary, int(head["mode"]) & 0o777)
            os.replace(temporary, output)
            return True
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def keep(self, key: str, output: str, needs: Sequence[str]) -> None:
        """Store the output and the hashes of the headers that were read; raise ``OSError``. An output above the limit is not stored."""
        found = os.stat(output)
        if found.st_size > _MOST_OBJECT:
            return
        head = {"format": _FORMAT, "mode": found.st_mode & 0o777, "needs": {path: self.digest(path) for path in needs}}
        line = json.dumps(head).encode("ascii") + b"\n"
        path = self.path(key)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.part")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as target, open(output, "rb") as source:
                seen = hashlib.sha256(line)
                target.write(b"0" * 64 + b"\n" + line)
                while chunk := source.read(_CHUNK):
                    seen.update(chunk)
                    target.write(chunk)
                target.seek(0)
                target.write(seen.hexdigest().encode("ascii"))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def digest(self, path: str) -> str:
        """Return the sha256 of a header, cached by size, time and inode; empty when the file does not exist."""
        try:
            found = os.stat(path)
            name = (path, found.st_size, found.st_mtime_ns, found.st_ino)
            if name not in self._digests:
                self._digests[name] = compiler.digest_of_file(path)
            return self._digests[name]
        except OSError:
            return ""


@dataclass
class _State:
    """The state of the object cache in this process."""

    store: Store | None = None
    own: tuple[str, ...] = ()
    process: int = 0
    served: int = 0
    built: int = 0
    unavailable: str | None = None
    """The reason why torch cannot be wrapped, empty when it is wrapped; None before the first attempt."""
    lock: threading.Lock = field(default_factory=threading.Lock)


_state = _State()


def install(folder: str | None, own: Sequence[str] = ()) -> None:
    """Serve from ``folder`` from now on, and reset the counts; None disables the cache.

    ``own`` are the folders of the case, whose paths are not part of a key. torch is wrapped once per process, and not for None.
    """
    _state.store = Store(folder) if folder else None
    _state.own = tuple(dict.fromkeys([*own, *map(os.path.realpath, own)]))
    _state.process, _state.served, _state.built = os.getpid(), 0, 0
    if folder and _state.unavailable is None:
        _state.unavailable = compiling.wrap_builds(_around)


def facts() -> dict[str, Any] | None:
    """Return the counts ``served`` and ``built`` of commands since ``install``, and ``unavailable``; None where the cache is off."""
    if _state.store is None:
        return None
    known: dict[str, Any] = {"served": _state.served, "built": _state.built}
    return {**known, "unavailable": _state.unavailable} if _state.unavailable else known


def _around(original: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    def build(cmd_line: str, cwd: str) -> Any:
        if _state.store is None or os.getpid() != _state.process:
            return original(cmd_line, cwd)
        if _serve_or_build(_state.store, cmd_line, cwd, original):
            with _state.lock:
                _state.served += 1
        else:
            with _state.lock:
                _state.built += 1
        return None

    return build


def _serve_or_build(store: Store, cmd_line: str, cwd: str, original: Callable[[str, str], Any]) -> bool:
    """Return whether the output was served, else run the command; raise as torch's own function raises."""
    command = understood(cmd_line, cwd, _state.own)
    key = _key(command) if command is not None and shutil.which(command.compiler) else None
    if command is None or key is None:
        original(cmd_line, cwd)
        return False
    if store.serve(key, command.output):
        return True
    if not command.compiles:
        original(cmd_line, cwd)
        needs: list[str] | None = []
    else:
        needs = _build_and_look(command, cmd_line, cwd, original)
    if needs is not None:
        with contextlib.suppress(OSError):  # no space left on device, for example: the next run builds it again
            store.keep(key, command.output, needs)
    return False


def _key(command: Command) -> str | None:
    made_by = compiler.identity(command.compiler, command.machine_flags)
    try:
        return key_of(command, made_by, compiler.torch_build(), os.environ) if made_by is not None else None
    except OSError:
        return None


def _build_and_look(command: Command, cmd_line: str, cwd: str, original: Callable[[str, str], Any]) -> list[str] | None:
    """Run the command; return the headers that were read, None where they are unknown."""
    rule = os.path.join(cwd, "needs.d")
    try:
        original(f"{cmd_line} -MD -MT needs -MF {shlex.quote(rule)}", cwd)
    except Exception:  # torch raises any error of the compiler; a second run without the additional options reports its own error
        original(cmd_line, cwd)
        return None
    try:
        with open(rule, encoding="utf-8", errors="surrogateescape") as stream:
            named = [os.path.join(cwd, name) for name in needs_of(stream.read())]
    except OSError:
        return None
    needs = [name for name in named if name not in (*command.inputs, *command.headers)]
    is_foreign = any(os.path.realpath(name).startswith(tuple(f"{place}/" for place in _state.own)) for name in needs)
    return None if is_foreign or not named else needs
