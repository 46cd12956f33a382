"""The program, called in the process of a test, and a run that has ended."""

import contextlib
import io
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unittest import mock

from tests.fakes import ROOT, environment
from torch_conformance.cli.parser import main
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import Run, read_run


def called(
    *arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Call the command line as ``tests.fakes.program`` does in a new process, and return what it
    said.

    For its texts and its exit code, without a new Python for each command.
    """
    words = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    variables = mock.patch.dict(os.environ, environment() if env is None else env)
    with (
        contextlib.chdir(cwd),
        variables,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(words)
        except SystemExit as stop:  # argparse exits after --help and after wrong usage
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return subprocess.CompletedProcess(words, int(code), out.getvalue(), err.getvalue())


@lru_cache(maxsize=8)
def _read(path: Path, _written: int) -> Run:
    return read_run(path)


@dataclass(frozen=True)
class Ran:
    """What a run said, and what it left."""

    out: Path
    code: int
    stdout: str
    stderr: str

    @property
    def run(self) -> Run:
        path = self.out / "run.jsonl"
        return _read(path, path.stat().st_mtime_ns)

    @property
    def results(self) -> Mapping[str, CaseResult]:
        run = self.run
        found = {str(result.case_id): result for result in run.results}
        assert len(found) == len(run.results)
        return found

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {name: result.outcome for name, result in self.results.items()}

    @property
    def last_line(self) -> str:
        return self.stdout.splitlines()[-1]


def processes_below(folder: Path) -> list[str]:
    """Return the command lines of the processes that stand in a folder, or were given a file in
    it.
    """
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                found += (
                    [words]
                    if str(folder) in words or os.readlink(entry / "cwd").startswith(str(folder))
                    else []
                )
        except OSError:
            continue
    return found


def normalised(out: Path) -> str:
    """Return the JUnit report of a run without what differs between any two runs: times, addresses,
    folders, what names the run.
    """
    tree = ET.parse(out / "junit.xml")
    for parent in list(tree.iter()):
        for name in ("time", "timestamp"):
            parent.attrib.pop(name, None)
        for child in list(parent):
            if child.tag == "property" and child.get("name") in ("run", "command", "merged"):
                parent.remove(child)
    text = re.sub(
        r"folder: \S*/cases/[0-9]+", "folder: -", ET.tostring(tree.getroot(), encoding="unicode")
    )
    return re.sub(r"0x[0-9a-f]+", "0x-", re.sub(r"page: \S*/index", "page: index", text))
