"""Importers of lists of known failures of other projects. A new form is a module and an entry of ``FORMS``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.language.importers import cuml, known_bugs, xpu
from runner.language.importers.base import Imported


@dataclass(frozen=True, slots=True)
class Form:
    """One form: what it is, and its reader, which raises ``InvalidSpecs``."""

    summary: str
    read: Callable[[Path], list[Imported]]


FORMS: Mapping[str, Form] = {
    "known-bugs": Form("known_bugs.yaml of rocBLAS and hipBLASLt", known_bugs.read),
    "xpu-skip-list": Form("a Python file of torch-xpu-ops with a dict of skipped tests", xpu.read),
    "xpu-issue": Form("the text of an issue of torch-xpu-ops with a list of cases", xpu.read_issue),
    "cuml-xfail-list": Form("xfail-list.yaml of cuML", cuml.read),
}
