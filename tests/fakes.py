"""Cases, backends, observations and an executor made by hand: what tests without workers are made
of.

Nothing here imports torch.
"""

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest

from tests import prestart
from torch_conformance.execute.executor_protocol import Execution, ExecutorSettings, Job
from torch_conformance.execute.spawn import ProcessStarter
from torch_conformance.judge.evidence import read_facts
from torch_conformance.judge.judge import judge
from torch_conformance.language import load as load_module
from torch_conformance.language.backends import load_backends
from torch_conformance.language.load import Suite, load
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.machine.capabilities import ANSWERS
from torch_conformance.model.case import (
    Case,
    CaseBody,
    CaseId,
    Expected,
    Requirement,
    Settings,
    Step,
)
from torch_conformance.model.case_facts import Ending, Facts, ServiceReport, StepWithCode
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.devices import HOLDS
from torch_conformance.model.diagnostics import Diagnostic, Position, shown_path
from torch_conformance.model.events import Activity
from torch_conformance.model.expectation import Reading, Verdict
from torch_conformance.model.results import CaseResult, result_of
from torch_conformance.plan.schedule import Capacity
from torch_conformance.vocabulary.backend import Backend, Proof
from torch_conformance.vocabulary.expectations import EXPECTATIONS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "runner" / "torch_conformance"

AT = Position(file="specs/area/fake.yaml", line=7, column=5)
HERE = Surroundings(backends=frozenset({"cpu"}), device="cpu", torch=(2, 13, 0), python=(3, 11, 7))
ELSEWHERE = {"device": "cuda"}
"""A condition that does not hold ``HERE``."""

ID = CaseId("area/fake[backend=cpu]")


def place(line: int, column: int = 1) -> Position:
    return Position(file="specs/area/fake.yaml", line=line, column=column)


def expected(kind: str, body: Any, line: int = 10) -> Expected:
    leaves = (
        {name: place(line, 9 + index) for index, name in enumerate(body)}
        if isinstance(body, dict)
        else {}
    )
    return Expected(
        kind=kind,
        check=EXPECTATIONS[kind].parse(body),
        position=place(line),
        leaves=leaves,
        body=body,
    )


def reading(here: Surroundings = HERE, **facts: Any) -> Reading:
    """Return what an expectation reads of a step with these facts."""
    return Reading(surroundings=here, **facts)


def judged(kind: str, body: Any, here: Surroundings = HERE, **facts: Any) -> list[Verdict]:
    """Judge one expectation on facts alone."""
    return list(EXPECTATIONS[kind].parse(body).judge(reading(here, **facts)))


def step(*expectations: Expected, kind: str = "call", line: int = 9, **arguments: Any) -> Step:
    needed: dict[str, Any] = {
        "api": {"call": "operator.add"},
        "spawn": {"call": "print"},
        "reset": {"items": ["dynamo"]},
    }.get(kind, {})
    return Step(
        kind=kind,
        arguments={**needed, **arguments},
        expectations=expectations,
        position=place(line),
    )


def case_body(**changes: Any) -> CaseBody:
    """Return the body of a case that compiles and has nothing but what is given; sections of
    options stand beside the rest.
    """
    settings = {
        section.name: changes.pop(section.name)
        for section in fields(Settings)
        if section.name in changes
    }
    return CaseBody(settings=Settings(**settings), **{"compiles": True, **changes})


def case(*steps: Step, id: str = ID, **changes: Any) -> Case:
    made = Case(
        id=CaseId(id),
        spec=AT.file,
        area="area",
        name="fake",
        position=place(1),
        summary="A case that was made by hand",
        covers=(),
        tags=(),
        backend="cpu",
        device="cpu",
        params={},
        requires=(),
        body=case_body(**changes.pop("body", {})),
        steps=steps,
        seed_key="area/fake{}",
    )
    return replace(made, **changes)


def used(*keys: str) -> str:
    """Return a line of a spec that names keys of its matrix: one that nothing names is refused."""
    texts = ", ".join(f'"{{{{ {key} }}}}"' for key in keys)
    return f"let: {{used: {{value: [{texts}]}}}}\n"


def requirement(name: str, argument: str | None = None) -> Requirement:
    return Requirement(name=name, argument=argument, position=AT)


@cache
def shipped() -> Mapping[str, Backend]:
    return load_backends().by_name


_inspect_specs = load_module.inspect_specs
_inspected: dict[object, Any] = {}


def inspected_once(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path] = (),
    known: Surroundings | None = None,
    problems: Sequence[Diagnostic] = (),
    **others: Any,
) -> Any:
    """Stand for ``inspect_specs`` in every test: read the shipped specs, which takes six seconds of
    a core, once in a process for each torch and each form of their paths in messages.
    """
    is_shipped = len(specs) > 1 and all(spec.root == ROOT / "specs" for spec in specs)
    if problems or any(others.values()) or not is_shipped:
        return _inspect_specs(specs, backend_files, known, problems, **others)
    torch = load_module.installed_torch()
    files = tuple((os.path.abspath(file), file.read_bytes()) for file in backend_files)
    key = (shown_path(ROOT), tuple(specs), files, known, torch and (torch.version, torch.root))
    if key not in _inspected:
        _inspected[key] = _inspect_specs(specs, backend_files, known)
    return _inspected[key]


def shipped_suite() -> Suite:
    """Return the shipped specs as they are loaded without a path."""
    return _shipped_suite(shown_path(ROOT))


@cache
def _shipped_suite(_: str) -> Suite:
    return load([])


def backend(name: str = "cpu", **proof: Any) -> Backend:
    """Return a shipped backend, with another proof where one is given."""
    found = shipped()[name]
    return replace(found, proof=Proof(**proof)) if proof else found


def exception(
    type_: str = "builtins.RuntimeError",
    message: str = "broken",
    phase: str = "trace",
    *ancestors: str,
) -> dict[str, Any]:
    return {
        "type": type_,
        "ancestors": [
            type_,
            *ancestors,
            "builtins.Exception",
            "builtins.BaseException",
            "builtins.object",
        ],
        "message": message,
        "traceback": f"Traceback (most recent call last):\n  ...\n{type_}: {message}\n",
        "phase": phase,
    }


def seen(**changes: Any) -> dict[str, Any]:
    """Return the facts of one step in which a graph was compiled for the CPU and called once."""
    return {
        "raised": None,
        "counters": {"inductor": {"fxgraph_cache_miss": 1}},
        "metrics": {"generated_kernel_count": 1},
        "entered": 1,
        "graphs": [["cpu"]],
        "executed": {"cpu": 1},
        "executed_others": {},
        "abandoned": [],
        "choices": [],
        "code": 0,
        "measured": {},
        "unmeasured": {},
        "effects": effects(),
        **changes,
    }


def observation(*steps: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "format": 2,
        "id": ID,
        "steps": list(steps),
        "error": None,
        "phases": {"trace": 0.5},
        "peak_bytes": 1,
        **changes,
    }


def observed(sent: Any) -> Facts:
    """Return what the runner reads of a worker's message; every piece of code is a call of mm."""
    return read_facts(sent, lambda *_: "extern_kernels.mm(a, b)")


def observed_steps(*steps: Mapping[str, Any]) -> tuple[StepWithCode, ...]:
    """Return what the runner reads of the facts of some steps."""
    facts = observed(observation(*steps))
    assert not facts.nonsense
    return facts.steps


ENDED = Ending(exit_code=0, phase="compare")


def verdict_of(
    judged_case: Case,
    facts: Any,
    *,
    by: Backend | None = None,
    ending: Ending = ENDED,
    note: str = "",
    problem: str = "",
    code: Mapping[tuple[int, int], str] | None = None,
    here: Surroundings = HERE,
    services: Sequence[ServiceReport] = (),
    stderr: str = "",
) -> CaseResult:
    """Judge a case on an observation, and return its result."""

    def read(index: int, piece: int, _sent: str) -> str:
        try:
            return (code or {})[index, piece]
        except KeyError:
            raise FileNotFoundError(2, "No such file", f"code-{index}-{piece}.txt") from None

    known = {
        "ending": ending,
        "note": note,
        "problem": problem,
        "services": tuple(services),
        "stderr": stderr,
    }
    known_facts = read_facts(facts, read, **known)
    return result_of(judged_case, judge(judged_case, by or backend(), here, known_facts))


COUNTED = expected("counter", {"inductor.fxgraph_cache_miss": 1})


def close_leaf(**changes: Any) -> dict[str, Any]:
    """Return what a worker measures of one tensor of three float32 numbers that are equal to their
    counterparts.
    """
    described = {"type": "tensor", "shape": [3], "dtype": "float32", "device": "cpu"}
    numbers = {
        "numel": 3,
        "nan_mismatches": 0,
        "inf_mismatches": 0,
        "mismatches": 0,
        "excess": 0.0,
        "max_abs": 0.0,
    }
    worst = {
        "worst_index": [1],
        "worst_value": 1.0,
        "worst_reference": 1.0,
        "rtol": 1.3e-6,
        "atol": 1e-5,
    }
    reference = {f"reference_{name}": value for name, value in described.items()}
    return {
        "path": "",
        **described,
        **reference,
        **numbers,
        **worst,
        "calibrated": {"why_not": "none here"},
        **changes,
    }


def effects(*leaves: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return what a worker measures of the side effects of a call: nothing differs but these
    values.
    """
    return {"compared": 2, "apart": [], "leaves": list(leaves), **changes}


def close_facts(*leaves: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {"structure": "*", "reference_structure": "*", "leaves": list(leaves), **changes}


def environment(**changes: str) -> dict[str, str]:
    """Return variables for a run of the program: a compiler that is quick to warm, no colours."""
    quick = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "NO_COLOR": "1"}
    path = os.pathsep.join(
        filter(None, [str(PACKAGE.parent), str(ROOT), os.environ.get("PYTHONPATH")])
    )
    return {**os.environ, **quick, "PYTHONPATH": path, **changes}


def prestarted(**changes: str) -> dict[str, str]:
    """Return the same variables for a run whose zygote does not import torch itself: see
    ``tests/prestart``.
    """
    return prestart.variables(environment(**changes), environment())


def prestarted_program(*arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run the program with a prestarted zygote: for tests of what the runner does with cases, whose
    torch is not what is tested.
    """
    return program(*arguments, **{"env": prestarted(), **options})


def program(
    *arguments: object, timeout: float = 240, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run the program as a person does and return what it said."""
    command = [sys.executable, "-m", "torch_conformance", *map(str, arguments)]
    options = {"cwd": ROOT, "env": environment(), **options}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        **options,
    )


def write_specs(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write specs, by their names, into ``specs`` of a folder; return the folder."""
    for name, text in texts.items():
        path = folder / "specs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def line_with(process: "subprocess.Popen[str]", words: str, seconds: float = 120) -> str:
    """Read standard error of a process up to a line with these words; one that does not write it in
    time is killed, and the test fails.
    """
    assert process.stderr is not None
    bound = threading.Timer(seconds, process.kill)
    bound.start()
    try:
        line = ""
        while words not in line:
            line = process.stderr.readline()
            assert line, f"it ended, or {seconds} s went by, without '{words}'"
        return line
    finally:
        bound.cancel()


def import_torch() -> Any:
    """Import torch, whatever it warns of: a torch without numpy does. It has one thread, as in a
    worker: several threads of small tensors wait for each other.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        import torch._dynamo
        import torch._functorch.config
        import torch._inductor.config

        import torch_conformance.worker.case.case_session  # noqa: F401 - it imports more of torch, which may warn too
    torch.set_num_threads(1)
    return torch


FACTS: dict[str, Any] = {"torch": "2.13.0", "gpus": 0}
"""What a fake executor reports of its machine."""


class FakeExecutor:
    """An executor without processes: ``answer`` makes the execution of each job.

    It records the calls that a run makes.
    """

    def __init__(self, answer: Callable[[Job], Execution]) -> None:
        self.answer = answer
        self.jobs: list[Job] = []
        """Every job of a case, in the order in which they were run."""
        self.rounds: list[list[Job]] = []
        """The jobs of each call of ``run``."""
        self.cancelled = 0
        """How many jobs were dropped."""
        self.settings: ExecutorSettings | None = None
        self.is_closed = False
        self.facts: Mapping[str, Any] = FACTS
        """What it reports of its machine."""
        self.predicates_hold = False
        """Whether it answers the questions of cases, with yes; else it does not know."""
        self.activity = Activity()
        self.warnings: tuple[str, ...] = ()
        self.start_up = None
        self._waiting: deque[Job] = deque()
        self._check: Callable[[], None] = lambda: None

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        self._waiting.extend(jobs)
        cases = [job for job in self._waiting if job.plan is not None]
        if cases:
            self.rounds.append(cases)
        while self._waiting:
            self._check()
            if not self._waiting:
                return
            job = self._waiting.popleft()
            if job.plan is None:
                facts = (
                    {**self.facts, ANSWERS: dict.fromkeys(job.questions, HOLDS)}
                    if self.predicates_hold
                    else dict(self.facts)
                )
                yield Execution(
                    job=job, observation=facts, ending=ENDED, seconds=1.0, isolation="fork"
                )
            else:
                self.jobs.append(job)
                yield self.answer(job)

    def enqueue(self, job: Job) -> None:
        self._waiting.append(job)

    def cancel_waiting(self) -> int:
        self.cancelled += len(self._waiting)
        self._waiting.clear()
        return 0

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        self._check = check

    def close(self) -> None:
        self.is_closed = True

    def started(self, settings: ExecutorSettings) -> Self:
        """Take the settings of a run, as the factory of an executor does, and forget the run
        before.
        """
        self.settings, self.is_closed = settings, False
        self.jobs, self.rounds = [], []
        return self


def passes(job: Job) -> Execution:
    """Return what a healthy worker sends of a case of two expectations: of a canary what it must
    be, of any other case a PASS.
    """
    assert job.plan is not None
    counters = {"inductor": {"fxgraph_cache_miss": 1}, "stats": {"unique_graphs": 1}}
    sent = observation(
        seen(measured={"0": close_facts(close_leaf())}, counters=counters), id=job.plan["id"]
    )
    return Execution(
        job=job, observation=sent, ending=ENDED, seconds=0.01, isolation="fork", worker=1
    )


def interrupted(job: Job) -> Execution:
    """Return the same while a user interrupts the run."""
    signal.raise_signal(signal.SIGINT)
    return passes(job)


def crashed(job: Job, seconds: float = 1.0) -> Execution:
    """Return the execution of a worker that ended without an answer."""
    return Execution(
        job=job,
        observation=None,
        ending=Ending(exit_code=1, phase="import"),
        seconds=seconds,
        isolation="fork",
    )


def use_executor(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Job], Execution]
) -> FakeExecutor:
    """Let runs of this process use a fake executor, also outside of pytest (``tests.corpus``), and
    start no zygote before it.
    """
    fake = FakeExecutor(answer)
    monkeypatch.setattr(ProcessStarter, "early", lambda jobs: nullcontext())
    monkeypatch.setattr("torch_conformance.run.pipeline.LocalExecutor", fake.started)
    return fake
