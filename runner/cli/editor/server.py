"""The language server: it answers an editor from the buffers that the editor shows."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from runner import __version__
from runner.cli.editor.definitions import definition_of
from runner.cli.editor.outcomes import last_outcome
from runner.cli.editor.place import keys_around, word_at
from runner.cli.editor.problems import Problem, characters, is_spec, problems_of, units
from runner.cli.editor.words import meaning, words_at
from runner.language.read.files import DEFAULTS

RUN = "torch-conformance.run"
"""The command of the code lens: it runs the spec of a file."""

_LARGEST = 1 << 20
"""Larger documents are not looked at; ``validate`` refuses them too."""


def serve(backends: Sequence[Path]) -> None:
    """Serve one editor on standard input and output, until it ends the connection."""
    # copies of the descriptors: the server closes its streams at the end, and the program still flushes its own
    with os.fdopen(os.dup(0), "rb") as stdin, os.fdopen(os.dup(1), "wb") as stdout:
        made_server(backends).start_io(stdin, stdout)


def made_server(backends: Sequence[Path]) -> LanguageServer:
    """Return the server with its answers."""
    server = LanguageServer("torch-conformance", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    _documents(server, backends)
    _questions(server)
    _runs(server)
    return server


def _documents(server: LanguageServer, backends: Sequence[Path]) -> None:
    def publish(uri: str) -> None:
        document = server.workspace.get_text_document(uri)
        path = path_of(uri)
        found = [] if path is None or not is_spec(path) else _problems(path, document, backends, _shown(server))
        server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, version=document.version, diagnostics=[_diagnostic(problem) for problem in found])
        )

    def publish_heirs(uri: str) -> None:
        """Publish the problems of the open specs that inherit a file of defaults."""
        path = path_of(uri)
        if path is not None and path.name == DEFAULTS:
            for other in list(server.workspace.text_documents):
                found = path_of(other)
                if other != uri and found is not None and found.is_relative_to(path.parent):
                    publish(other)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        publish(params.text_document.uri)
        publish_heirs(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        publish(params.text_document.uri)
        publish_heirs(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=params.text_document.uri, diagnostics=[]))
        publish_heirs(params.text_document.uri)  # what was not saved is gone


def _problems(path: Path, document: TextDocument, backends: Sequence[Path], shown: Mapping[Path, str]) -> list[Problem]:
    if len(document.source) > _LARGEST:
        return [Problem(line=0, start=0, end=1, message=f"larger than {_LARGEST} characters: not checked", is_error=True)]
    return problems_of(path, document.source, backends, shown)


def _shown(server: LanguageServer) -> dict[Path, str]:
    """Return the contents of the open files of defaults, saved or not."""
    paths = {path_of(uri): document for uri, document in server.workspace.text_documents.items()}
    found = {path: document.source for path, document in paths.items() if path is not None and path.name == DEFAULTS}
    return {path: text for path, text in found.items() if len(text) <= _LARGEST}


def _questions(server: LanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[" ", "{", "[", ".", ":"]))
    def completion(params: types.CompletionParams) -> types.CompletionList:
        lines, place = _lines(server, params.text_document.uri, params.position)
        found = words_at(keys_around(lines, *place)) if lines else {}
        items = [
            types.CompletionItem(label=word, documentation=text, kind=types.CompletionItemKind.Property) for word, text in found.items()
        ]
        return types.CompletionList(is_incomplete=False, items=items)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        lines, place = _lines(server, params.text_document.uri, params.position)
        word = word_at(lines[place[0]], place[1]) if lines and place[0] < len(lines) else ""
        text = meaning(keys_around(lines, *place), word) if word else ""
        return types.Hover(contents=types.MarkupContent(kind=types.MarkupKind.PlainText, value=text)) if text else None

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> types.Location | None:
        lines, place = _lines(server, params.text_document.uri, params.position)
        path = path_of(params.text_document.uri)
        word = word_at(lines[place[0]], place[1]) if lines and place[0] < len(lines) else ""
        found = definition_of(word, path, lines) if path is not None and word else None
        if found is None:
            return None
        start = types.Position(line=found.line, character=found.column)
        end = types.Position(line=found.line, character=found.column + units(found.name))
        uri = params.text_document.uri if found.path == path else found.path.absolute().as_uri()
        return types.Location(uri=uri, range=types.Range(start=start, end=end))


def _runs(server: LanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def lenses(params: types.CodeLensParams) -> list[types.CodeLens]:
        path = path_of(params.text_document.uri)
        if path is None or not is_spec(path) or path.name.startswith("_"):
            return []
        place = types.Range(start=types.Position(line=0, character=0), end=types.Position(line=0, character=0))
        made = [types.CodeLens(range=place, command=types.Command(title="run", command=RUN, arguments=[str(path)]))]
        outcome = last_outcome(path)
        return [*made, *([types.CodeLens(range=place, command=types.Command(title=outcome, command=""))] if outcome else [])]

    @server.command(RUN)
    def run(path: str) -> None:
        if not is_spec(Path(path)) or not Path(path).is_file():
            server.window_show_message(types.ShowMessageParams(types.MessageType.Error, "save the spec first: only a file can be run"))
            return
        threading.Thread(target=_run, args=(server, path), daemon=True).start()


_LONGEST = 86_400
"""Seconds that a run may take."""


def _run(server: LanguageServer, path: str) -> None:
    """Run a spec in a process of its own, and say how it ended. Standard output belongs to the protocol."""
    command = [sys.executable, "-m", "runner", "run", path]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=_LONGEST
    )
    last = ended.stdout.strip().rpartition("\n")[2] or ended.stderr.strip().rpartition("\n")[2]
    kind = types.MessageType.Info if ended.returncode == 0 else types.MessageType.Error
    server.window_show_message(types.ShowMessageParams(kind, f"exit {ended.returncode}: {last}"))
    if server.client_capabilities.workspace and server.client_capabilities.workspace.code_lens:
        server.workspace_code_lens_refresh(None)


def path_of(uri: str) -> Path | None:
    """Return the path of a document; None for one that is no file."""
    parsed = urlparse(uri)
    if parsed.scheme != "file":
        return None
    path = unquote(parsed.path)
    return Path(path) if path.startswith("/") and "\0" not in path else None


def _lines(server: LanguageServer, uri: str, position: types.Position) -> tuple[list[str], tuple[int, int]]:
    """Return the lines of a document, and the place of a position in it, in characters."""
    # a document that was not opened, or is closed already, has no text here: the file on the disk is not what the editor shows
    document = server.workspace.text_documents.get(uri)
    text = document.source if document is not None else ""
    lines = text.split("\n") if len(text) <= _LARGEST else []
    number = min(position.line, max(len(lines) - 1, 0))
    return lines, (number, characters(lines[number], position.character) if lines else 0)


def _diagnostic(problem: Problem) -> types.Diagnostic:
    start = types.Position(line=problem.line, character=problem.start)
    end = types.Position(line=problem.line, character=problem.end)
    severity = types.DiagnosticSeverity.Error if problem.is_error else types.DiagnosticSeverity.Warning
    return types.Diagnostic(range=types.Range(start=start, end=end), message=problem.message, severity=severity, source="torch-conformance")
