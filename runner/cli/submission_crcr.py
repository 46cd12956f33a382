"""``submit --format crcr``: write the callbacks of PyTorch's cross-repository CI relay as files. Nothing is sent."""

import os
from collections.abc import Mapping
from pathlib import Path

from runner.core.diagnostics import UsageError, shown_path
from runner.core.exit_codes import ExitCode
from runner.core.header import RunHeader
from runner.core.options import SubmitOptions
from runner.report.files import replace
from runner.run.relaying import Altered, relayed
from runner.system import output


def main(options: SubmitOptions) -> ExitCode:
    """Write ``in_progress.json`` and ``completed.json``; exit 1 where the files of the run were changed."""
    if options.key is not None:
        raise UsageError("--format crcr takes no --key: a callback is authenticated by the CI that sends it (remove --key)")
    try:
        made = relayed(options, os.environ)
    except Altered as error:
        output.note(f"torch-conformance: {error}; nothing was written")
        return ExitCode.FAILED
    folder = options.out or Path(f"crcr-{made.header.run_id}")
    paths = {folder / f"{status}.json": body for status, body in made.bodies.items()}
    for path in paths:
        if path.exists() and (not options.replace or not path.is_file()):
            raise UsageError(f"--out {shown_path(folder)}: {path.name} exists there already (add --replace, or name another folder)")
    for path, body in paths.items():
        replace(path, body)
    _show(options, made.header, paths)
    return ExitCode.OK


def _show(options: SubmitOptions, header: RunHeader, paths: Mapping[Path, bytes]) -> None:
    if options.json:
        files = [{"file": str(path), "bytes": len(body)} for path, body in paths.items()]
        output.document({"format": 1, "run": header.run_id, "files": files})
        return
    for path in paths:
        output.raw(f"{shown_path(path)}\n")
