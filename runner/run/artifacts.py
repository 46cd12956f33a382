"""The files that a worker leaves in the folder of its case, as a report needs them. A worker may have put anything there."""

import contextlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from runner.core.protocol import MAX_ATTACHMENT
from runner.execute.base import Execution
from runner.record.evidence import CaseFiles
from runner.system.safe_open import open_untrusted, tail
from runner.system.streams import OUT_OF_SPACE

_OUTPUT_BYTES = 64_000
"""How much of what a worker printed goes into the journal: the end of it."""

_STACK_BYTES = 512_000
"""How much of it is searched for the stack of a case whose time was up: other threads may go on printing."""

_CODE_FILE = re.compile(r"code-([0-9]{1,4})-([0-9]{1,4})\.txt")
_MOST_CODE_FILES = 100


def code_files(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of some names that are files of generated code, in their order."""
    found = [match for name in names if (match := _CODE_FILE.fullmatch(name))]
    return tuple(match[0] for match in sorted(found, key=lambda match: (int(match[1]), int(match[2])))[:_MOST_CODE_FILES])


def keep(files: CaseFiles, path: Path, facts: object) -> str:
    """Write facts beside the worker's output, and their digest to ``files``; return why not, where it left something in the way."""
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
            # that is no worker's doing, and the run cannot be recorded
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
    """Return what may hold the stack of a case whose time was up, or that died."""
    ending = execution.ending
    if ending.timed_out:
        return tail(path, _STACK_BYTES, start=execution.stack_from)
    return tail(path, _STACK_BYTES) if ending.signal or ending.exit_code or execution.observation is None else ""


def printed(path: Path) -> str:
    """Return the end of what a worker printed, and how much came before."""
    text = tail(path, _OUTPUT_BYTES)
    with contextlib.suppress(OSError), open_untrusted(path) as stream:
        left_out = stream.seek(0, 2) - _OUTPUT_BYTES
        return f"... {left_out} bytes before this are left out; {path.name} has them ...\n{text}" if left_out > 0 else text
    return text
