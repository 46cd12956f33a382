"""Reads the files of waivers."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from torch_conformance.language.backends import Backends, read_named
from torch_conformance.language.check.spec import condition_problems
from torch_conformance.language.read.document import WAIVERS
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.matching.patterns import check_pattern, is_unspecific
from torch_conformance.model.conditions import as_list
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.waivers import Signature, Waiver, WaiverFiles
from torch_conformance.vocabulary.backend import Backend
from torch_conformance.vocabulary.expectations import EXPECTATIONS

OUTSIDE_OF_EXPECTATIONS = ("raised", "side-effects", "fell-back", "crash", "timeout")
"""Types of failures without an expectation.

``error`` cannot be waived, because such a case claims nothing.
"""


def load_waivers(extra: Sequence[Path], backends: Backends | None) -> WaiverFiles:
    """Read the shipped waivers and those of ``extra`` files; raise ``InvalidSpecs`` with all
    problems of all files.

    Without ``backends``, names in conditions are not checked.
    """
    problems: list[Diagnostic] = []
    waivers = read_waivers(extra, backends, problems)
    if problems:
        raise InvalidSpecs(problems)
    return waivers


def read_waivers(
    extra: Sequence[Path], backends: Backends | None, problems: list[Diagnostic]
) -> WaiverFiles:
    """Read the shipped waivers and those of ``extra`` files as far as possible, and add their
    problems.
    """
    shipped = folder("specs") / "waivers.yaml"
    documents: list[Document] = []
    waivers: list[Waiver] = []
    paths: dict[str, Path] = {}
    for path in [*([shipped] if shipped.exists() else []), *extra]:
        paths.setdefault(os.path.realpath(path), path)
    for path in paths.values():
        if (document := read_named(path, WAIVERS, problems)) is None:
            continue
        documents.append(document)
        waivers.extend(_waivers(document, problems))
        if backends is not None and backends.is_whole:
            problems.extend(condition_problems(document, ("waivers",), backends))
    for backend in () if backends is None else backends.by_name.values():
        waivers.extend(_of_cells(backend))
    user_files = frozenset(document.file for document in documents if document.path != shipped)
    return WaiverFiles(waivers=tuple(waivers), documents=tuple(documents), user_files=user_files)


def _waivers(document: Document, problems: list[Diagnostic]) -> Iterator[Waiver]:
    """Yield the waivers of a file, without those of an invalid date, and add its problems."""
    for index, entry in enumerate(document.data["waivers"]):
        path: DataPath = ("waivers", index)
        failure = entry["failure"]  # one signature, or a list of them
        several = [failure] if isinstance(failure, dict) else failure
        signatures = []
        for number, signature in enumerate(several):
            place = (*path, "failure") if isinstance(failure, dict) else (*path, "failure", number)
            problems.extend(_signature_problems(document, place, signature))
            numbers = dict(signature.get("answer", {}))
            if "error" in signature:
                error = signature["error"]
                numbers |= {"most": error["max"]} if isinstance(error, dict) else {"error": error}
            signatures.append(
                Signature(
                    signature["type"],
                    signature["match"],
                    tuple(as_list(signature.get("phase", ()))),
                    numbers,
                )
            )
        try:
            until = date.fromisoformat(entry["until"])
        except ValueError as error:
            problems.append(
                document.diagnostic(
                    (*path, "until"), "not-a-date", value=entry["until"], reason=str(error)
                )
            )
            continue
        yield Waiver(
            cases=entry["cases"],
            when=entry.get("when"),
            failures=tuple(signatures),
            reason=entry["reason"],
            issue=entry["issue"],
            until=until,
            flaky=entry.get("flaky", False),
            position=document.position(path),
        )


def _of_cells(backend: Backend) -> Iterator[Waiver]:
    """Yield a waiver for each known gap of a compiler; it has no last day."""
    raised = "no exception, observed"
    failures = {
        "by-aten": (Signature("fell-back", "by ATen: "),),
        "wrong": (Signature("close", f"^(?!.*{raised})"),),
        "raised": (
            Signature("close", raised),
            *(Signature(kind, "") for kind in ("crash", "timeout")),
        ),
    }
    for cell in backend.expected[1]:
        yield Waiver(
            cases=f"*[backend={backend.name},op={cell.operator},dtype={cell.type}*",
            when=None,
            failures=failures[cell.state],
            reason=f"{backend.name} expects {cell.state}",
            issue=cell.issue,
            until=date.max,
            is_cell=True,
            position=cell.position,
        )


_FIXED: Mapping[str, tuple[str, ...]] = {
    "raised": ("raised: expected no exception, observed {0} in phase '{1}': {0}",),
    "fell-back": (
        "proof: expected {0} runs a graph for {1}, observed it ran none: the call was eager",
        "proof: expected backend {0} ran a graph that dynamo captured, observed it ran eagerly: "
        "{1}",
        "proof: expected {0} inductor graphs for {1}, compiled or from a cache, and called, "
        "observed {0} graphs, {1} calls",
    ),
    "crash": ("crash: expected an answer, observed killed by {0} while in phase '{1}'",),
    "timeout": (
        "timeout: expected an answer, observed outlived its deadline while in phase '{1}'",
    ),
}
"""What messages of a type say, with {0} and {1} for the variable parts."""

_WIDE = 1e3
"""A greatest error that excuses most wrong answers."""

OF_NUMBERS = ("close", "side-effects")
"""Types of failures that compare numbers."""

WITH_PHASE = ("raised", "crash", "timeout")
"""Types of failures that name the phase in which they happened."""


def _signature_problems(
    document: Document, path: DataPath, signature: Mapping[str, Any]
) -> Iterator[Diagnostic]:
    kind, pattern = signature["type"], signature["match"]
    if "phase" in signature and kind not in WITH_PHASE:
        yield document.diagnostic(
            (*path, "phase"),
            "failure-without-phase",
            key=True,
            kind=kind,
            types=", ".join(WITH_PHASE),
        )
    for word in ("error", "answer"):
        if word in signature and kind not in OF_NUMBERS:
            yield document.diagnostic(
                (*path, word),
                "failure-without-numbers",
                key=True,
                kind=kind,
                types=", ".join(OF_NUMBERS),
            )
    if kind == "error":
        yield document.diagnostic((*path, "type"), "waived-error")
    elif kind not in (types := (*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS)):
        yield document.diagnostic((*path, "type"), unknown_word("type-of-failure", kind, types))
    # the fixed text of the messages of the type, with {0} and {1} for the variable parts
    frames: tuple[str, ...] = (
        (f"{kind}: expected {{0}}, observed {{1}}",) if kind in EXPECTATIONS else ()
    )
    frames = _FIXED.get(kind, frames)
    code = ""
    if (reason := check_pattern(pattern)) is not None:
        code = "bad-pattern-of-a-waiver"
    elif is_unspecific(pattern):
        code = "waives-any-failure"
    elif is_unspecific(pattern, frames):
        code = "waives-any-of-a-type"
    elif (
        kind in OF_NUMBERS
        and (
            "error" not in signature
            or (
                isinstance(most := signature["error"], dict)
                and most["max"] > _WIDE
                and "answer" not in signature
            )
        )
        and is_unspecific(pattern, _frames_of_numbers(kind, pattern))
    ):
        code = "waives-any-number"
    if code:
        yield document.diagnostic((*path, "match"), code, kind=kind, reason=reason or "")


def _frames_of_numbers(kind: str, pattern: str) -> tuple[str, ...]:
    """Return what messages about wrong numbers say, with {0} for the numbers, of the values that a
    pattern may mean.
    """
    literal = (
        (pattern.replace("\\", ""),) if re.fullmatch(r"[a-z][a-z0-9_.\\\[\]']*", pattern) else ()
    )
    values = (
        "output",
        "output['result'] gradients",
        "gradients: output['gradients'][0]",
        "argument [0]",
        "function.weight.grad",
        *literal,
    )
    endings = (
        *(
            "within 2 x eager's error against float64, observed {0} of {0} elements wrong; at "
            f"[{{0}}]: got {{0}}, eager {{0}}, float64 {{0}}; greatest error of {{0}} ulp "
            f"({eager_error}), {{0}} times the bound"
            for eager_error in ("{0} times eager's greatest error", "eager has no error")
        ),
        "within atol={0}, rtol={0} (no float64 reference: values of dtype int64 are exact), "
        "observed greatest difference {0}; "
        "at [{0}]: {0} against {0}",
    )
    return tuple(f"{kind}: expected {value} {words}" for value in values for words in endings)
