"""The text of the YAML files of a run. A file is shown only where it is the one that was run: its digest is in the header."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from runner.core.protocol import Json
from runner.core.results import CaseResult
from runner.report.html.scripts import shown
from runner.system import data_dirs
from runner.system.redaction import redacted

_LARGEST = 1 << 20
"""Bytes of a YAML file that the page shows."""


def files_of(results: Iterable[CaseResult]) -> list[str]:
    """Return the files that cases point to: their specs, and where their verdicts and waivers stand."""
    found: dict[str, None] = {}
    for result in results:
        found[result.spec] = None
        for verdict in result.verdicts:
            found[verdict.position.file] = None
        for waiver in result.waivers:
            found[waiver.position.file] = None
    return list(found)


def sources_of(files: Iterable[str], digests: Mapping[str, str]) -> dict[str, Json]:
    """Return for each file its text, or why it is not shown."""
    return {shown(file): _source(file, digests.get(file, "")) for file in files}


def _source(file: str, digest: str) -> dict[str, str]:
    if not digest:
        return {"why": "the journal has no digest of this file"}
    why = "this file is not here"
    for path in _places(file):
        try:
            data = path.read_bytes() if path.is_file() and path.stat().st_size <= _LARGEST else None
        except OSError as error:
            why = f"this file cannot be read: {error.strerror}"
            continue
        if data is None:
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            why = "this file has changed since the run"
            continue
        text = data.decode("utf-8", "backslashreplace")
        # line by line: the numbers of lines stay, whatever is masked
        return {"text": shown("\n".join(map(redacted, text.split("\n"))))}
    return {"why": why}


def _places(file: str) -> Iterable[Path]:
    """Yield where a file may lie: as the journal names it, and beside the installed program."""
    yield Path(file)
    if not Path(file).is_absolute():
        yield data_dirs.folder("schemas").parent / file
