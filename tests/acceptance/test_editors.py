"""The schemas as they lie in the repository, for the tools that people have: each shipped file
names its schema and fits it.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from check_jsonschema import main
from referencing import Registry

from tests.conftest import GOOD
from tests.fakes import ROOT

KINDS = {"backends": "backends", "_defaults": "defaults", "waivers": "waivers"}
SPECS = [
    *(path for path in (ROOT / "specs").rglob("*.yaml") if path.name != "_seeds.yaml"),
    *(ROOT / "tools" / "benchmarks").rglob("*.yaml"),
]
SERVER = shutil.which("yaml-language-server")


def schema_of(path: Path) -> Path:
    """Return the schema that the first line of a file names."""
    with path.open(encoding="utf-8") as file:
        found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)\n", file.readline())
    assert found, f"{path}: begin it with # yaml-language-server: $schema=..."
    return path.parent.joinpath(found[1]).resolve()


FILES = sorted(SPECS, key=lambda path: (str(schema_of(path)), path))


def test_each_file_names_the_schema_of_its_kind() -> None:
    for path in FILES:
        kind = "profile" if path.parent.name == "profiles" else KINDS.get(path.stem, "spec")
        assert schema_of(path) == ROOT / "schemas" / f"{kind}.schema.json", path


class Checked(NamedTuple):
    """The end of check-jsonschema, and what it printed."""

    code: object
    said: str


@pytest.fixture
def check_jsonschema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Checked]:
    """Return a function that runs check-jsonschema here. It looks each reference up anew for each
    value of each file, which takes most of its time: here what it found is kept.
    """
    looked_up: dict[tuple[int, str], Any] = {}
    look_up = Registry.get_or_retrieve

    def kept(registry: Any, uri: str) -> Any:
        place = (id(registry), uri)
        if place not in looked_up:
            looked_up[place] = (registry, look_up(registry, uri))
        return looked_up[place][1]

    monkeypatch.setattr(Registry, "get_or_retrieve", kept)

    def check(schema: Path, *files: Path) -> Checked:
        with pytest.raises(SystemExit) as ended:
            main(["--schemafile", str(schema), *map(str, files)])
        return Checked(ended.value.code, "".join(capsys.readouterr()))

    return check


Check = Callable[..., Checked]


ALL = pytest.mark.nightly(
    reason="every run has one of ten files of each schema, and loads them all by the project's own "
    "validator, which test_schema compares with the schemas"
)


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=ALL)])
def test_check_jsonschema_finds_nothing(step: int, check_jsonschema: Check) -> None:
    for schema, files in groupby(FILES, schema_of):
        assert check_jsonschema(schema, *[*files][::step]) == (0, "ok -- validation done\n")


@pytest.mark.parametrize("name", ["claims", "conformance", "lab"])
def test_check_jsonschema_reads_the_schemas_of_other_files(
    name: str, tmp_path: Path, check_jsonschema: Check
) -> None:
    schema = ROOT / "schemas" / f"{name}.schema.json"
    (example, *_) = json.loads(schema.read_text("utf-8"))["examples"]
    (tmp_path / "good.json").write_text(json.dumps(example))
    (tmp_path / "bad.json").write_text(json.dumps({**example, "X": 1}))
    assert check_jsonschema(schema, tmp_path / "good.json").code == 0
    assert check_jsonschema(schema, tmp_path / "bad.json").code == 1


def test_check_jsonschema_finds_a_misspelt_key_and_a_misspelt_name(
    tmp_path: Path, check_jsonschema: Check
) -> None:
    (tmp_path / "bad.yaml").write_text(GOOD + "conifg: {}\nconfig: {freezin: true}\n")
    done = check_jsonschema(ROOT / "schemas" / "spec.schema.json", tmp_path / "bad.yaml")
    assert done.code == 1
    assert "'conifg' was unexpected" in done.said
    assert "'freezin' was unexpected" in done.said


class Server:
    """A language server, which says what is wrong with a text."""

    def __init__(self) -> None:
        command = [str(SERVER), "--stdio"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(id=1, method="initialize", params={"capabilities": {}})
        next(message for message in self._messages() if message.get("id") == 1)
        self._send(method="initialized", params={})
        settings = {"yaml": {"validate": True, "schemaStore": {"enable": False}}}
        self._send(method="workspace/didChangeConfiguration", params={"settings": settings})

    def _send(self, **message: Any) -> None:
        assert self._process.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _messages(self) -> Iterator[Any]:
        out = self._process.stdout
        assert out
        while line := out.readline():
            if line.startswith(b"Content-Length:"):
                size = int(line.split()[1])
                while out.readline().strip():
                    pass
                message = json.loads(out.read(size))
                if "method" in message and "id" in message:
                    self._send(id=message["id"], result=None)
                yield message

    def problems(self, path: Path, text: str) -> list[str]:
        file = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": file})
        for message in self._messages():
            said = message.get("params") or {}
            if message.get("method", "").endswith("Diagnostics") and said["uri"] == file["uri"]:
                self._send(method="textDocument/didClose", params={"textDocument": file})
                return [problem["message"] for problem in said["diagnostics"]]
        raise EOFError("the language server ended")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.nightly(reason="all files take 100 s; check-jsonschema reads the same schemas always")
@pytest.mark.skipif(SERVER is None, reason="npm install --global yaml-language-server")
def test_a_language_server_finds_nothing() -> None:
    server = Server()
    try:
        modeline = "# yaml-language-server: $schema=../schemas/spec.schema.json\n"
        said = server.problems(ROOT / "specs" / "bad.yaml", f"{modeline}{GOOD}conifg: {{}}\n")
        assert said == ["Property conifg is not allowed."]
        found = {path: server.problems(path, path.read_text("utf-8")) for path in FILES}
    finally:
        server.close()
    assert {path: problems for path, problems in found.items() if problems} == {}
