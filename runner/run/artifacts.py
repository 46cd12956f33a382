"""The artifacts of a case, as reports need them. They are untrusted: a worker can write any file to the folder of its case."""

import contextlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.observation import Observation, Timing
from runner.core.protocol import MAX_ATTACHMENT
from runner.execute.base import Execution
from runner.record.evidence import CaseFiles
from runner.system.safe_open import open_untrusted, tail
from runner.system.streams import OUT_OF_SPACE

_OUTPUT_BYTES = 64_000
"""The end of a worker's output that the journal records."""

_STACK_BYTES = 512_000
"""The end of standard error that is searched for the stack of a case that timed out: other threads may continue to print."""

_CODE_FILE = re.compile(r"(?P<what>code|graph)-(?P<step>[0-9]{1,4})(?P<stage>-[a-z_]{1,20})?-(?P<index>[0-9]{1,4})\.txt")
_MOST_CODE_FILES = 100


def code_files(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are files of generated code, by step and piece, then those of graphs."""
    found = [match for name in names if (match := _CODE_FILE.fullmatch(name)) and (match["what"] == "graph") is bool(match["stage"])]
    ordered = sorted(found, key=lambda match: (match["what"], int(match["step"]), match["stage"] or "", int(match["index"])))
    return tuple(match[0] for match in ordered[:_MOST_CODE_FILES])


def keep(files: CaseFiles, path: Path, facts: object) -> str:
    """Write facts to the folder of the case, and add their digest to ``files``; return why that failed, empty if it did not."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if facts is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(facts, ensure_ascii=True).encode("ascii")
            path.write_bytes(data)
            files.note(path.name, data)
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            # no space left on the device is no fault of the worker: the run cannot be recorded
            raise OSError(error.errno, error.strerror, str(path)) from error
        return f"the worker left no room for its {path.stem}: {error.strerror}"
    return ""


def why_no_attachment(path: Path) -> str:
    """Return why a file cannot be attached to a report; empty where it can."""
    try:
        with open_untrusted(path) as stream:
            size = stream.seek(0, 2)
    except OSError as error:
        return f"{path.name} was left out: {error.strerror or error}"
    return "" if size <= MAX_ATTACHMENT else f"{path.name} was left out: it is larger than {MAX_ATTACHMENT >> 20} MiB"


def stack_text(path: Path, execution: Execution) -> str:
    """Return the text that may contain the stack of a case that timed out or died."""
    ending = execution.ending
    if ending.timed_out:
        return tail(path, _STACK_BYTES, start=execution.stack_from)
    return tail(path, _STACK_BYTES) if ending.signal or ending.exit_code or execution.observation is None else ""


def printed(path: Path) -> str:
    """Return the end of a worker's output, with the size of the omitted beginning."""
    text = tail(path, _OUTPUT_BYTES)
    with contextlib.suppress(OSError), open_untrusted(path) as stream:
        left_out = stream.seek(0, 2) - _OUTPUT_BYTES
        return f"... {left_out} bytes before this are left out; {path.name} has them ...\n{text}" if left_out > 0 else text
    return text


@dataclass(frozen=True, slots=True)
class Benches:
    """The timings, attachments and notes of bench steps."""

    timings: tuple[Timing, ...] = ()
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def phases(observation: Observation | None) -> dict[str, float]:
    """Return the seconds of each phase, without impossible values."""
    found = {} if observation is None else observation.phases
    return {name: round(float(seconds), 4) for name, seconds in found.items() if 0 <= seconds < 1e9}


def benches(folder: Path, observation: Observation | None) -> Benches:
    """Return the timings, attachments and notes of the bench steps."""
    found = [step.bench for step in observation.steps if step.bench is not None] if observation is not None else []
    names = list(dict.fromkeys(name for bench in found for name in bench.attachments))
    refused = {name: why for name in names if (why := why_no_attachment(folder / name))}
    return Benches(
        timings=tuple(timing for bench in found for timing in bench.timings),
        attachments=tuple(name for name in names if name not in refused),
        notes=(*(note for bench in found for note in bench.notes), *refused.values()),
    )
