"""Recorded facts with the outcome that follows from them, a folder for each subject: what the
program judges, reports, packs and compares.

A folder has a ``spec.yaml``, what a run of it left (``observation.json``, ``code-*.txt``,
``services.json``) and ``cases.yaml``: cases that are made of these facts by edits. ``gives`` is
what follows: the outcome, the type of failure and the line of the spec that is shown, then each
verdict with its kind, status and line. What a real run does not give easily (a crash, nonsense,
another machine) is an edit too.

    recording: endings                     # another folder, whose spec and facts these cases share;
    without it its own
    machine: cuda                          # of MACHINES; without it a CPU
    options: [--retries, "2"]              # of the run
    cases:
      one miss more:
        facts: {steps.0.counters.inductor.fxgraph_cache_miss: 2}
        gives: "FAIL counter 8: counter failed 8, proof held"
        contradicts: [facts]             # the checks of ``verify`` that find that its facts cannot
        all be true
        shown: true                      # its texts, on a terminal and in JUnit, are whole in
        ``tests/data/texts``

All cases of one machine and the same options are one run. ``python -m tests.corpus`` records, shows
and checks.
"""

import contextlib
import copy
import hashlib
import io
import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes import ROOT, use_executor
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Ending, Execution, Job, ServiceReport
from torch_conformance.machine import capabilities
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.run import preparation

HERE, TORCH = Path(__file__).parent, "2.13.0"
MACHINES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "cpu": ({"builds": {}, "gpus": 0}, {"torch": TORCH, "gpus": 0}),
    "cuda": (
        {"builds": {"cuda": "13.0"}, "gpus": None},
        {
            "torch": TORCH,
            "cuda": "13.0",
            "gpus": 1,
            "device": "NVIDIA H100",
            "arch": "sm_90",
            "gpu_memory": 80 << 30,
        },
    ),
    "rocm": (
        {"builds": {"hip": "7.0"}, "gpus": None},
        {
            "torch": TORCH,
            "hip": "7.0",
            "gpus": 1,
            "device": "AMD Instinct MI300X",
            "arch": "gfx942",
            "gpu_memory": 192 << 30,
            "ck_dir": "/opt/ck",
            "big_gpu": True,
        },
    ),
}
"""What files show of a machine, and what its worker reports."""

PACKAGES = dict.fromkeys(("cxx", "triton", "ck", "hipcc"), ("/elsewhere",))
"""What every machine of the corpus has."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusCase:
    """One case: the facts of a folder, edited, and what they give."""

    folder: Path
    name: str
    recording: Path
    """The folder of its spec and of its facts."""
    machine: str = "cpu"
    options: tuple[str, ...] = ()
    edits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """Its name as that of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def title(self) -> str:
        """Its name for people: the folder, and its own."""
        return f"{self.folder.name}: {self.name}"

    def file(self, name: str) -> Path:
        """Return a file of its folder, or of the recording."""
        return self.folder / name if (self.folder / name).exists() else self.recording / name

    @property
    def spec(self) -> str:
        """The text of its spec, with lines that stay where they are."""
        text = self.file("spec.yaml").read_text("utf-8")
        for old, new in self.edits.get("spec", {}).items():
            assert old in text, f"{self.title}: the spec has no {old!r}"
            text = text.replace(old, new)
        return text

    @cached_property
    def attempts(self) -> Sequence[Mapping[str, Any]]:
        """The edits of each attempt; the last ones are those of further attempts."""
        return self.edits.get("attempts", [{}])

    def execution(self, job: Job, out: Path, number: int) -> Execution:
        """Return what an executor says of an attempt of the case; its files are written as a worker
        writes them.
        """
        edits = {**self.edits, **self.attempts[min(number, len(self.attempts) - 1)]}
        place = out / job.folder
        place.mkdir(parents=True, exist_ok=True)
        code = {
            path.name: path.read_text("utf-8") for path in sorted(self.recording.glob("code-*.txt"))
        }
        for name, change in edits.get("code", {}).items():
            code[name] = _edited_text(code.get(name, ""), change)
        for name, text in code.items():
            if text is not None:
                (place / name).write_text(text, "utf-8")
        (place / "stderr.txt").write_text(edits.get("stderr", ""), "utf-8")
        observation = (
            edits["observation"]
            if "observation" in edits
            else json.loads(self.file("observation.json").read_text("utf-8"))
        )
        if isinstance(observation, dict):
            assert job.plan is not None
            observation.update(id=job.plan["id"], digest=job.plan["digest"])
            for path, value in edits.get("facts", {}).items():
                _set(observation, path.split("."), value)
            observation = json.loads(
                json.dumps(observation).replace(
                    "{spec}", f"{out.parent}/specs/{self.folder.name}/{self.slug}.yaml"
                )
            )
            _seal(observation, code)
            for path, value in edits.get("after_sealing", {}).items():
                _set(observation, path.split("."), value)
        services = self.file("services.json")
        reports = (
            edits["services"]
            if "services" in edits
            else json.loads(services.read_text("utf-8"))
            if services.exists()
            else []
        )
        return Execution(
            job=job,
            observation=observation,
            ending=Ending(**{"exit_code": 0, "phase": "compare", **edits.get("ending", {})}),
            seconds=1.0,
            isolation="fork",
            files=tuple(name for name, text in code.items() if text is not None),
            services=tuple(ServiceReport(**report) for report in reports),
            problem=edits.get("problem", ""),
            note=edits.get("note", ""),
        )


def _edited_text(text: str, change: Any) -> str | None:
    """Return a text with a change: another text, None for no file, or a map of what is replaced by
    what.
    """
    if not isinstance(change, dict):
        return change
    for old, new in change.items():
        assert old in text, f"the code has no {old!r}"
        text = text.replace(old, new)
    return text


def _set(facts: Any, path: Sequence[str], value: Any) -> None:
    """Put a value at a path of keys and indices.

    The value ``...`` removes what is there; ``{$at: PATH}`` is a copy of another place.
    """
    *names, last = path
    value = copy.deepcopy(value)
    if isinstance(value, dict) and "$at" in value:
        value = copy.deepcopy(_at(facts, value["$at"].split(".")))
    facts = _at(facts, names)
    if value == "...":
        del facts[int(last) if isinstance(facts, list) else last]
    elif isinstance(facts, list):
        facts[int(last) : int(last) + 1] = [value]
    else:
        facts[last] = value


def _at(facts: Any, path: Sequence[str]) -> Any:
    for name in path:
        facts = facts[int(name)] if isinstance(facts, list) else facts.setdefault(name, {})
    return facts


def _graph(code: str) -> dict[str, list[str]]:
    """Return a graph of these arguments and operators."""
    called = re.search(r"def call\((?:self, )?args\):\n +([\w, ]*\w),? = args", code)
    operators = re.findall(r"(?<=_fused_)\w+?(?=_[0-9]+\b)|(?<=[\[ ])aten\.\w+", code)
    return {
        "arguments": ["?"] * len(called[1].split(",")) if called else [],
        "operators": operators,
    }


def _seal(observation: dict[str, Any], code: Mapping[str, str | None]) -> None:
    """Write the number, the digests and the operators of the pieces of code of each step, as the
    worker does.
    """
    for index, step in enumerate(observation.get("steps") or ()):
        pieces = [
            text
            for name, text in sorted(code.items())
            if name.startswith(f"code-{index}-") and text is not None
        ]
        if isinstance(step, dict) and (pieces or "code_digests" in step):
            step["code"] = len(pieces)
            step["code_digests"] = [hashlib.sha256(text.encode()).hexdigest() for text in pieces]
            step["code_graphs"] = [*map(_graph, pieces)]


@cache
def cases(folder: Path) -> tuple[CorpusCase, ...]:
    """Return the cases of a folder."""
    document = yaml.safe_load((folder / "cases.yaml").read_text("utf-8"))
    common = {
        "recording": HERE / document.get("recording", folder.name),
        "machine": document.get("machine", "cpu"),
        "options": tuple(document.get("options", ())),
    }
    return tuple(
        CorpusCase(folder=folder, name=name, edits=edits or {}, **common)
        for name, edits in document["cases"].items()
    )


def folders() -> list[Path]:
    """Return the folders of the corpus."""
    return sorted(path.parent for path in HERE.glob("*/cases.yaml"))


CONTRADICTING = "contradicting"
"""The last word of a group of cases whose facts cannot all be true."""


def groups() -> dict[str, list[CorpusCase]]:
    """Return all cases by the run that they are part of."""
    found: dict[str, list[CorpusCase]] = {}
    for case in itertools.chain.from_iterable(map(cases, folders())):
        more = [CONTRADICTING] if "contradicts" in case.edits else []
        found.setdefault(" ".join([case.machine, *case.options, *more]), []).append(case)
    return found


@dataclass(frozen=True, kw_only=True)
class CorpusRun:
    """A run of cases of the corpus: its folder, and what its command exited with."""

    place: Path
    """The working folder of the run."""
    out: Path
    code: int
    cases: Mapping[str, CorpusCase]
    """By the beginning of their ids."""
    printed: str = ""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of its journal."""
        return [
            json.loads(line) for line in (self.out / "run.jsonl").read_text("utf-8").splitlines()
        ]

    @property
    def results(self) -> Iterator[tuple[CorpusCase, dict[str, Any]]]:
        """Each case with its line of the journal."""
        for line in self.lines:
            if line["kind"] == "case":
                yield self.cases[line["case_id"].partition("[")[0]], line

    def command(self, *words: str) -> tuple[int, str, str]:
        """Give a command in the folder of the run; return its exit code, and what it printed and
        said.
        """
        printed, said = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.place),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            return main(list(words)), printed.getvalue(), said.getvalue()

    @cached_property
    def contradictions(self) -> dict[str, list[str]]:
        """What the program finds when it packs the run: for each case the checks by which its facts
        cannot all be true.
        """
        found: dict[str, list[str]] = {}
        code, _, said = self.command(
            "submit", self.out.name, "--out", "submission.tar.zst", "--replace"
        )
        for check, name in re.findall(r"^([a-z]+): ([^\s\[]+)\[", said, re.M):
            found.setdefault(self.cases[name].title, []).append(check)
        assert code in ((1,) if found else (0, 4)), said
        return found


def run(
    place: Path,
    some: Sequence[CorpusCase],
    out: str = "out",
    *more: str,
    facts_of: Mapping[CorpusCase, CorpusCase] | None = None,
) -> CorpusRun:
    """Run cases of one machine and the same options in a folder, with an executor that answers with
    their facts.

    ``more`` are further options. ``facts_of`` are cases that answer with the facts of another one.
    """
    by_name = {f"{case.folder.name}/{case.slug}": case for case in some}
    assert len(by_name) == len(some), "two cases of one name"
    words: list[str] = []
    for name, case in by_name.items():
        path = place / "specs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(case.spec, "utf-8")
    for folder in dict.fromkeys(case.folder for case in some):
        for option in ("backends", "waivers"):
            if (file := folder / f"{option}.yaml").exists():
                (place / f"{folder.name}-{file.name}").write_text(file.read_text("utf-8"), "utf-8")
                words += [f"--{option}", f"{folder.name}-{file.name}"]
    numbers: dict[str, int] = {}

    def answer(job: Job) -> Execution:
        assert job.plan is not None
        name = str(job.plan["id"]).partition("[")[0]
        numbers[name] = numbers.get(name, -1) + 1
        case = by_name[name]
        return (facts_of or {}).get(case, case).execution(job, place / out, numbers[name])

    machine = capabilities.inspect_files(installed_torch())
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(place):
        files, use_executor(patch, answer).facts = MACHINES[some[0].machine]
        found = {**machine.found, **PACKAGES}
        patch.setattr(
            capabilities,
            "inspect_files",
            lambda installed: replace(machine, torch=TORCH, found=found, **files),
        )
        patch.setattr(preparation, "facts_of_files", lambda installed: {"torch": TORCH})
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            code = main(["run", "specs", "--out", out, *words, *some[0].options, *more])
    made = CorpusRun(
        place=place, out=place / out, code=code, cases=by_name, printed=printed.getvalue()
    )
    assert (made.out / "run.jsonl").exists(), said.getvalue()
    assert "--shard" in more or len(list(made.results)) == len(some), said.getvalue()
    return made


def given(line: Mapping[str, Any]) -> str:
    """Return what a line of a journal says, in the words of ``gives``."""
    own = f"specs/{line['area']}/"
    phase = f"in {line['phase']}" if line.get("phase") else ""
    shown = " ".join(
        filter(None, [line["outcome"], line["failure_type"], _place(line["position"], own), phase])
    )
    verdicts = ", ".join(
        " ".join(
            filter(None, [verdict["kind"], verdict["status"], _place(verdict["position"], own)])
        )
        for verdict in line["verdicts"]
    )
    attempts = " / ".join(
        " ".join(filter(None, [attempt["outcome"], attempt["failure_type"]]))
        for attempt in line.get("attempts", ())
    )
    waivers = " ".join(
        f"[{waiver['effect']} {waiver['position']['line']}]" for waiver in line.get("waivers", ())
    )
    return " ".join(
        filter(
            None,
            [
                f"{shown}: {verdicts}".removesuffix(": "),
                waivers,
                f"({attempts})" if attempts else "",
            ],
        )
    )


def _place(position: Mapping[str, Any], own: str) -> str:
    """Return the line of a position in the spec; that of a file of backends or waivers has no fixed
    line.
    """
    return str(position.get("line", 1)) if position["file"].startswith(own) else ""


TEXTS = HERE.parent / "data" / "texts"


def texts(place: Path) -> dict[str, str]:
    """Return the texts of the cases that are shown, by the names of files: what a terminal has of
    each, its JUnit element, the summary.
    """
    shown = [
        case for case in itertools.chain.from_iterable(groups().values()) if "shown" in case.edits
    ]
    made = run(place, shown)

    def steady(text: str) -> str:
        text = text.replace(f"{ROOT}/", "").replace(f"{place}/", "").strip()
        return re.sub(r"cases/\d{5}", "cases/N", re.sub(r"; \d+ s\Z", "; N s", text)) + "\n"

    *blocks, summary = made.printed.split("\n\n")
    elements = {
        element.get("name"): element
        for element in ET.parse(made.out / "junit.xml").iter("testcase")
    }
    found = {"summary": steady(summary)}
    for case, line in made.results:
        block = next(
            (
                block
                for block in blocks
                if f"'{line['case_id']}'" in block.partition("\nclaim: ")[0]
            ),
            "",
        )  # none where it is counted
        found[f"{case.folder.name}-{case.slug}"] = steady(
            f"{block}\n\n{ET.tostring(elements[line['case_id']], 'unicode')}"
        )
    return found
