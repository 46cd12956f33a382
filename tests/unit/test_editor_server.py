"""The language server, driven over the protocol: one real process for all checks."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.fakes import prestarted

SPEC = """\
summary: A sum equals eager
backends: [cpu]
config: {max_autotune: true}
prelude: |
  def loss(x):
      return x.sum()
function: |
  def fn(x):
      return x + 1
inputs: [{randn: [8]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}]
  - api: {call: loss, args: [{ref: inputs.0}], as: total}
    expect: [{differs: {total: 0}}]
"""


class Client:
    """Speaks the protocol with a server over its standard streams."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "runner", "lsp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=folder, env=env)
        self.messages: Queue[dict[str, Any]] = Queue()
        self.kept: list[dict[str, Any]] = []
        self.number = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while True:
            length = 0
            while (line := self.process.stdout.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if not length:
                return
            self.messages.put(json.loads(self.process.stdout.read(length)))

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def until(self, is_wanted: Any) -> dict[str, Any]:
        for message in self.kept:
            if is_wanted(message):
                self.kept.remove(message)
                return message
        while True:
            message = self.messages.get(timeout=120)
            if is_wanted(message):
                return message
            self.kept.append(message)

    def ask(self, method: str, params: dict[str, Any] | None) -> Any:
        self.number += 1
        own = self.number
        self.send({"id": own, "method": method, "params": params})
        answer = self.until(lambda message: message.get("id") == own and "method" not in message)
        assert "error" not in answer, answer
        return answer["result"]

    def end(self) -> None:
        """End the session as an editor does."""
        self.ask("shutdown", None)
        self.tell("exit", {})
        assert self.process.wait(timeout=60) == 0
        self.reader.join(timeout=60)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def lenses(self, uri: str) -> list[dict[str, Any]]:
        """Return the commands of the code lenses of a document."""
        return [lens["command"] for lens in self.ask("textDocument/codeLens", {"textDocument": {"uri": uri}})]

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self.send({"method": method, "params": params})

    def opened(self, uri: str, text: str) -> list[dict[str, Any]]:
        """Open a document; return its diagnostics."""
        self.tell("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}})
        return self._diagnostics(uri)

    def changed(self, uri: str, text: str, version: int) -> list[dict[str, Any]]:
        self.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]})
        return self._diagnostics(uri)

    def _diagnostics(self, uri: str) -> list[dict[str, Any]]:
        found = self.until(lambda m: m.get("method") == "textDocument/publishDiagnostics" and m["params"]["uri"] == uri)
        diagnostics: list[dict[str, Any]] = found["params"]["diagnostics"]
        return diagnostics

    def at(self, method: str, uri: str, line: int, character: int) -> Any:
        return self.ask(method, {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    pytest.importorskip("pygls", reason="the extra 'editor' is not installed")
    folder = tmp_path_factory.mktemp("editor")
    (folder / "saved.yaml").write_text(SPEC, encoding="utf-8")
    made = Client(folder)
    made.ask("initialize", {"processId": None, "rootUri": folder.as_uri(), "capabilities": {}})
    made.tell("initialized", {})
    yield made
    made.end()


@pytest.fixture
def place(client: Client, tmp_path: Path) -> Path:
    return tmp_path


def test_problems_are_those_of_validate_at_their_positions(client: Client, place: Path) -> None:
    uri = (place / "unsaved.yaml").as_uri()  # the file does not exist
    assert client.opened(uri, SPEC) == []
    wrong = SPEC.replace("max_autotune: true", "max_autotun: true")
    (found,) = client.changed(uri, wrong, 2)
    assert found["range"]["start"] == {"line": 2, "character": 9}
    assert found["severity"] == 1
    path = place / "unsaved.yaml"
    path.write_text(wrong, encoding="utf-8")
    said = subprocess.run(
        [sys.executable, "-m", "runner", "validate", str(path)], capture_output=True, text=True, check=False, timeout=120
    ).stdout
    assert f":3:10: {found['message']}" in said
    assert client.changed(uri, SPEC, 3) == [], "the buffer counts, and not the file on the disk"


def test_columns_are_utf16_units(client: Client, place: Path) -> None:
    uri = (place / "wide.yaml").as_uri()
    text = SPEC.replace("inputs: [{randn: [8]}]", 'inputs: [{value: "\U0001f600"}, {rando: [8]}]')
    found = client.opened(uri, text)
    assert len('inputs: [{value: "12"}, {') in {one["range"]["start"]["character"] for one in found}


def test_hover_shows_default_and_comment_of_torch(client: Client, place: Path) -> None:
    uri = (place / "hover.yaml").as_uri()
    client.opened(uri, SPEC)
    said = client.at("textDocument/hover", uri, 2, 12)["contents"]["value"]
    assert "max_autotune: bool = os.environ.get(" in said or "max_autotune = os.environ.get(" in said
    assert "autotuning" in said
    assert client.at("textDocument/hover", uri, 8, 10) is None, "Python is not hovered"


def test_completion_of_options_counters_and_backends(client: Client, place: Path) -> None:
    uri = (place / "words.yaml").as_uri()
    client.opened(uri, "summary: x\nbackends: [c]\nconfig: {max_}\nexpect:\n  - counter: {ind}\n\n")

    def words(line: int, character: int) -> set[str]:
        return {item["label"] for item in client.at("textDocument/completion", uri, line, character)["items"]}

    assert "rocm-ck" in words(1, 12)
    assert "max_autotune_gemm_backends" in words(2, 13)
    assert "inductor.fxgraph_cache_hit" in words(4, 17)
    assert {"summary", "expect", "matrix"} <= words(5, 0)


def test_definition_is_in_the_prelude(client: Client, place: Path) -> None:
    uri = (place / "definition.yaml").as_uri()
    client.opened(uri, SPEC)
    found = client.at("textDocument/definition", uri, 13, 18)
    assert found["uri"] == uri
    assert found["range"]["start"] == {"line": 4, "character": 6}
    (place / "_defaults.yaml").write_text("prelude: |\n  def outer(x):\n      return x\n", encoding="utf-8")
    client.changed(uri, SPEC.replace("call: loss", "call: outer"), 2)
    assert client.at("textDocument/definition", uri, 13, 18)["uri"] == (place / "_defaults.yaml").as_uri()


def test_code_lens_runs_a_saved_file_only(client: Client, place: Path) -> None:
    uri = (place / "lens.yaml").as_uri()
    client.opened(uri, SPEC)
    lenses = client.ask("textDocument/codeLens", {"textDocument": {"uri": uri}})
    assert [lens["command"]["title"] for lens in lenses] == ["run"]
    client.ask("workspace/executeCommand", lenses[0]["command"] | {"command": "torch-conformance.run"})
    said = client.until(lambda message: message.get("method") == "window/showMessage")
    assert "save the spec first" in said["params"]["message"]


CASE = """\
summary: A call returns three
backends: [host]
steps:
  - {api: {call: operator.add, args: [1, 2], as: sum}, expect: [{equals: {sum: 3}}]}
"""


def test_run_and_last_run_follow_each_other(tmp_path: Path) -> None:
    """The lens "run" is pressed as an editor presses it: its own command and arguments are sent back."""
    pytest.importorskip("pygls", reason="the extra 'editor' is not installed")
    path = tmp_path / "sum.yaml"
    path.write_text(CASE, encoding="utf-8")
    client = Client(tmp_path, prestarted())
    client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {"workspace": {"codeLens": {"refreshSupport": True}}}})
    client.tell("initialized", {})
    client.opened(path.as_uri(), CASE)
    for text, code, kind, outcome in ((CASE, 0, 3, "1 PASS"), (CASE.replace("sum: 3", "sum: 4"), 1, 1, "1 FAIL")):
        path.write_text(text, encoding="utf-8")
        client.ask("workspace/executeCommand", client.lenses(path.as_uri())[0])
        said = client.until(lambda message: message.get("method") == "window/showMessage")["params"]
        assert (said["type"], said["message"].partition(":")[0]) == (kind, f"exit {code}"), said
        refresh = client.until(lambda message: message.get("method") == "workspace/codeLens/refresh")
        client.send({"id": refresh["id"], "result": None})
        titles = [lens["title"] for lens in client.lenses(path.as_uri())]
        assert titles[0] == "run"
        assert titles[1].startswith(f"last run: {outcome} (")
    client.end()


def test_the_lens_of_a_removed_file_says_so(client: Client, place: Path) -> None:
    path = place / "removed.yaml"
    path.write_text(CASE, encoding="utf-8")
    client.opened(path.as_uri(), CASE)
    command = client.lenses(path.as_uri())[0]
    path.unlink()
    client.ask("workspace/executeCommand", command)
    said = client.until(lambda message: message.get("method") == "window/showMessage")
    assert "save the spec first" in said["params"]["message"]


@pytest.mark.parametrize("arguments", [[], [3], ["a", "b"], ["../../etc/passwd"], ["x\0.yaml"], None])
def test_hostile_commands_run_nothing(client: Client, arguments: Any) -> None:
    client.number += 1
    client.send(
        {"id": client.number, "method": "workspace/executeCommand", "params": {"command": "torch-conformance.run", "arguments": arguments}}
    )
    answer = client.until(lambda message: message.get("id") == client.number and "method" not in message)
    said = [message for message in client.kept if message.get("method") == "window/showMessage"]
    client.kept[:] = [message for message in client.kept if message not in said]
    assert "error" in answer or "save the spec first" in str(said)
    assert client.ask("textDocument/codeLens", {"textDocument": {"uri": "untitled:1"}}) in ([], None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.yaml", "[" * 20_000),
        ("nul.yaml", "summary: \0"),
        ("surrogate.yaml", "summary: \ud800\n"),
        ("bomb.yaml", "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]\n"),
        ("huge.yaml", "x" * (1 << 20) + "yz"),
        ("list.yaml", "- 1\n"),
        ("empty.yaml", ""),
        ("_defaults.yaml", "prelude: 3\n"),
    ],
)
def test_hostile_documents_have_a_problem_and_the_server_lives(client: Client, place: Path, name: str, text: str) -> None:
    uri = (place / name).as_uri()
    assert client.opened(uri, text)
    client.at("textDocument/completion", uri, 0, 3)
    client.at("textDocument/hover", uri, 0, 3)
    client.at("textDocument/definition", uri, 0, 3)


def test_other_documents_have_none(client: Client, place: Path) -> None:
    assert client.opened((place / "notes.txt").as_uri(), "no: [yaml") == []
    assert client.opened("untitled:Untitled-1", "no: [yaml") == []


def test_a_spec_follows_its_defaults_as_they_are_typed(client: Client, place: Path) -> None:
    spec, defaults = place / "heir.yaml", place / "_defaults.yaml"
    defaults.write_text("config: {max_fusion_size: 8}\n", encoding="utf-8")
    assert client.opened(spec.as_uri(), SPEC) == []
    assert client.opened(defaults.as_uri(), defaults.read_text("utf-8")) == []
    assert client.changed(defaults.as_uri(), "config: {max_fusion_sise: 8}\n", 2) == [], "an option is checked where a spec uses it"
    (found,) = client._diagnostics(spec.as_uri())
    assert found["range"]["start"] == {"line": 0, "character": 0}
    assert "_defaults.yaml:1:10: unknown config 'max_fusion_sise'" in found["message"]
    assert client.changed(defaults.as_uri(), "config: [\n", 3)
    assert client._diagnostics(spec.as_uri())
    client.tell("textDocument/didClose", {"textDocument": {"uri": defaults.as_uri()}})
    assert client._diagnostics(spec.as_uri()) == [], "what was typed and not saved is gone"


def test_a_document_that_is_not_open_has_no_answer(client: Client, place: Path) -> None:
    assert client.at("textDocument/hover", (place / "nowhere.yaml").as_uri(), 0, 0) is None
    assert client.at("textDocument/definition", (place / "nowhere.yaml").as_uri(), 3, 0) is None
