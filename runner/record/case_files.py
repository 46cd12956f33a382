"""The files by which a case is judged. Their digests are computed when it is judged, and verified when the files are read again."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.machine.scratch import open_untrusted
from runner.model.case_facts import ServiceReport
from runner.model.protocol import Json
from runner.model.results import CaseResult

OBSERVATION = "observation.json"
SERVICES = "services.json"
CODE_BYTES = 16 << 20
"""The maximum size in bytes of a piece of generated code."""

_MOST_BYTES = 512 << 20
"""The maximum size in bytes of a recorded file; no run writes larger ones."""


class EvidenceAltered(Exception):
    """A file by which a case was judged has changed since."""


def digest(data: bytes) -> str:
    """Return the sha256 of a file's content."""
    return hashlib.sha256(data).hexdigest()


def code_name(step: int, piece: int) -> str:
    """Return the name of a piece of generated code."""
    return f"code-{step}-{piece}.txt"


class CaseFiles:
    """The files of a case during judging, with the digest of each file that was read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.digests: dict[str, str] = {}

    def note(self, name: str, data: bytes) -> None:
        """Record the digest of a file that the runner wrote."""
        self.digests[name] = digest(data)

    def code(self, step: int, piece: int, sent: str) -> str:
        """Return a piece of generated code; raise ``OSError`` where there is none, too much, or another text than the worker wrote.

        ``sent`` is its digest as the worker wrote it.
        """
        name = code_name(step, piece)
        data = _read(self._folder, name, CODE_BYTES)
        self.note(name, data)
        if self.digests[name] != sent:
            raise OSError(f"{name} is not the text that the worker wrote: code of the case changed the file")
        return data.decode("utf-8", "surrogateescape")


class RecordedFiles:
    """The files of a recorded case. Each digest is verified; raises ``EvidenceAltered``."""

    def __init__(self, folder: Path, digests: Mapping[str, str]) -> None:
        self._folder = folder
        self._digests = digests

    def observation(self) -> Json:
        """Return the worker's message."""
        return json.loads(self._verified(OBSERVATION))

    def services(self) -> list[ServiceReport]:
        """Return the reports of the case's services."""
        return [ServiceReport(**report) for report in json.loads(self._verified(SERVICES))] if SERVICES in self._digests else []

    def code(self, step: int, piece: int, _sent: str = "") -> str:
        """Return a piece of generated code: the journal has its digest."""
        return self._verified(code_name(step, piece)).decode("utf-8", "surrogateescape")

    def _verified(self, name: str) -> bytes:
        data = _read(self._folder, name, _MOST_BYTES)
        if name not in self._digests:
            raise EvidenceAltered(f"{self._folder / name}: the journal has no digest of this file")
        if digest(data) != self._digests[name]:
            raise EvidenceAltered(f"{self._folder / name}: not the file that the case was judged by")
        return data


def alterations(folder: Path, result: CaseResult) -> Iterator[str]:
    """Yield each file of a result, or of its attempts, that changed since judging; ``folder`` is the run's."""
    parts = {result.folder: result.evidence, **{attempt.folder: attempt.evidence for attempt in result.attempts}}
    for name, digests in parts.items():
        links = [path for path in (folder / name, *(folder / name).parents) if path != folder and path.is_relative_to(folder)]
        links = [path for path in links if path.is_symlink()]
        if digests and links:
            yield f"{links[0]}: a link in the place of the files that {result.case_id} was judged by"
            continue
        for file, expected in digests.items():
            path = folder / name / file
            try:
                actual = digest(_read(folder / name, file, _MOST_BYTES))
            except OSError as error:
                yield f"{path}: the file that {result.case_id} was judged by cannot be read: {error.strerror or error}"
                continue
            if actual != expected:
                yield f"{path}: not the file that {result.case_id} was judged by"


def _read(folder: Path, name: str, limit: int) -> bytes:
    with open_untrusted(folder / name) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"{name} is larger than {limit >> 20} MiB")
    return data
