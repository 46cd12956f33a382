"""The files by which a case is judged.

Their digests are computed when it is judged, and verified when the files are read again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model.case_facts import ServiceReport
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import CaseResult

OBSERVATION = "observation.json"
SERVICES = "services.json"
SCRIPT = "repro.py"
"""What ``run`` writes for a case that failed; nothing is judged by it."""

CODE_BYTES = 16 << 20
"""The maximum size in bytes of a piece of generated code."""

_MOST_BYTES = 512 << 20
"""The maximum size in bytes of a recorded file; no run writes larger ones."""


class EvidenceAltered(Exception):
    """A file by which a case was judged has changed since."""


def digest(data: bytes) -> str:
    """Return the sha256 of a file's content."""
    return hashlib.sha256(data).hexdigest()


def code_of_worker(folder: Path, digests: dict[str, str], step: int, piece: int, sent: str) -> str:
    """Return a piece of generated code, and add its digest; raise ``OSError`` where there is none,
    too much, or another text than was sent.

    ``sent`` is its digest as the worker wrote it.
    """
    name = f"code-{step}-{piece}.txt"
    data = read_file(folder / name, CODE_BYTES)
    digests[name] = digest(data)
    if digests[name] != sent:
        raise OSError(
            f"{name} is not the text that the worker wrote: code of the case changed the file"
        )
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
        return (
            [ServiceReport(**report) for report in json.loads(self._verified(SERVICES))]
            if SERVICES in self._digests
            else []
        )

    def code(self, step: int, piece: int, _sent: str = "") -> str:
        """Return a piece of generated code: the journal has its digest."""
        return self._verified(f"code-{step}-{piece}.txt").decode("utf-8", "surrogateescape")

    def _verified(self, name: str) -> bytes:
        data = read_file(self._folder / name)
        if name not in self._digests:
            raise EvidenceAltered(f"{self._folder / name}: the journal has no digest of this file")
        if digest(data) != self._digests[name]:
            raise EvidenceAltered(
                f"{self._folder / name}: not the file that the case was judged by"
            )
        return data


def alterations(folder: Path, result: CaseResult) -> Iterator[str]:
    """Yield each file of a result, or of its attempts, that changed since judging; ``folder`` is
    the run's.
    """
    parts = {
        result.folder: result.evidence,
        **{attempt.folder: attempt.evidence for attempt in result.attempts},
    }
    for name, digests in parts.items():
        links = [
            path
            for path in (folder / name, *(folder / name).parents)
            if folder in path.parents and path.is_symlink()
        ]
        if digests and links:
            yield (
                f"{links[0]}: a link in the place of the files that {result.case_id} was judged by"
            )
            continue
        for path, expected in (
            (folder / name / file, expected) for file, expected in digests.items()
        ):
            try:
                if digest(read_file(path)) != expected:
                    yield f"{path}: not the file that {result.case_id} was judged by"
            except OSError as error:
                yield (
                    f"{path}: the file that {result.case_id} was judged by cannot be read: "
                    f"{error.strerror or error}"
                )


def read_file(path: Path, limit: int = _MOST_BYTES) -> bytes:
    """Return the content of a file that a worker may have replaced; raise ``OSError`` where it is
    none, or larger than ``limit``.
    """
    with open_untrusted(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"{path.name} is larger than {limit >> 20} MiB")
    return data
