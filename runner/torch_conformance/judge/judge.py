"""Folds facts into one outcome. Pure: a recorded observation can be judged again.

The ending of the process is judged first, then the validity of the observation, then its facts:

| process              | observation     | expectations | proof  | outcome   |
|----------------------|-----------------|--------------|--------|-----------|
| exceeded its deadline | any            | any          | any    | TIMEOUT   |
| died                 | any             | any          | any    | CRASH     |
| ended                | broke the protocol | any       | any    | ERROR     |
| ended                | none            | any          | any    | CRASH     |
| ended                | with an error   | any          | any    | ERROR     |
| ended                | facts           | one cannot be judged, or none applies | any | ERROR |
| ended                | facts           | one failed   | any    | FAIL      |
| ended                | facts           | all passed   | failed | FELL_BACK |
| ended                | facts           | one also holds for changed facts | passed | ERROR |
| ended                | facts           | all passed   | passed | PASS      |
"""

import posixpath
import re
import signal
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from torch_conformance.judge.evidence import CALL, CarriedOut, carried_out, first_line, folded
from torch_conformance.judge.mutants import verdicts_of_audit
from torch_conformance.judge.proof import operators_of, own_names, proof, with_who_computed
from torch_conformance.judge.verdicts import verdicts_of, verdicts_of_services
from torch_conformance.model.case import Case
from torch_conformance.model.case_facts import Facts
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import Judged, fold
from torch_conformance.optional.tools import hooks
from torch_conformance.vocabulary.backend import Backend
from torch_conformance.vocabulary.steps import expects_raise, python_of

_OWN_EXCEPTIONS = (
    "torch_conformance.vocabulary.steps.step_base.NotCarriedOut",
    "torch_conformance.worker.process.seal.Broken",
)
"""Exceptions that the worker itself raises: their text needs neither type nor traceback."""


class Offline(Protocol):
    """What is asked of the tool ``offline``."""

    def proof(self, case: Case, backend: Backend, steps: Sequence[CarriedOut]) -> Verdict:
        """Judge that every text names the target and has the kernel."""

    def with_level(self, case: Case, passed: Judged) -> Judged:
        """Return an OFFLINE_PASS with its level of evidence."""


def _offline() -> Offline:
    offline: Offline = hooks("offline")
    return offline


def judge(case: Case, backend: Backend, surroundings: Surroundings, facts: Facts) -> Judged:
    """Judge one case: return its outcome with the reason, without data about its execution."""
    if (ended := by_ending(case, facts)) is not None:
        return ended
    if why := _why_not_of_case(case, facts):
        return _unjudged(case, why)
    if (ended := ended_by_code(case, surroundings, facts)) is not None:
        return ended
    if (error := facts.error) is not None:
        if error.type in _OWN_EXCEPTIONS:  # raised by the worker, not by the spec's code
            return _unjudged(case, f"{error.phase}: {first_line(error.message)}")
        reason = f"{error.phase}: {error.type}: {first_line(error.message)}"
        position = _place(case, _frame_in_spec(case, error.traceback), len(facts.steps) or None)
        return _unjudged(case, reason, position, folded(error.traceback))
    if facts.nonsense:
        return _unjudged(case, facts.nonsense)
    steps = list(carried_out(case, facts.steps))
    verdicts = verdicts_of(case, surroundings, steps)
    # an exception is a more specific reason than anything that the steps after it did not show
    has_raised = any(verdict.kind == "raised" for verdict in verdicts)
    if not has_raised:
        verdicts.extend(verdicts_of_services(case, facts.services, steps, surroundings))
    if case.target:
        verdicts.append(_offline().proof(case, backend, steps))
    elif backend.compiles and not has_raised:
        verdicts.append(
            proof(
                backend, surroundings, steps, own_names(case) if backend.proof.code else frozenset()
            )
        )
    outcome, failure_type, first = fold(verdicts, case.target)
    if first is None:
        verdicts.extend(verdicts_of_audit(case, surroundings, steps))
        outcome, failure_type, first = fold(verdicts, case.target)
    reason = first_line(first.message) if first else ""
    place = first.position if first and outcome is not Outcome.FELL_BACK else None
    result = Judged(
        outcome=outcome,
        reason=reason,
        failure_type=failure_type,
        verdicts=tuple(verdicts),
        position=place or case.position,
    )
    generated = [known.facts.metrics.get("generated_kernel_count", 1) for known in steps]
    if backend.proof.served is not None:
        result = operators_of(result, steps)
    elif backend.compiles and outcome is Outcome.PASS and not any(generated):
        result = with_who_computed(result, steps)
    return _offline().with_level(case, result) if case.target and first is None else result


def _why_not_of_case(case: Case, facts: Facts) -> str:
    """Return why facts say nothing of a case: a problem of a service, or another case's facts;
    empty where they say something.
    """
    for service in facts.services:
        if service.problem:
            return f"{service.name}: {service.problem}"
    if facts.nonsense and not facts.case_id:
        return facts.nonsense
    why = "it has too many steps" if len(facts.steps) > len(case.steps) else ""
    why = why if facts.case_id == case.id else "it is another case's"
    return why and f"the worker's observation makes no sense: {why}"


# -- how a process ended ---------------------------------------------------------------------------

_HEAD = re.compile(
    r"(?P<name>Current thread|Thread) (?P<id>0x[0-9a-f]{1,16})(?: \[.{0,100}\])? \(most "
    r"recent call first\):\Z"
)
_FRAME = re.compile(
    r'  File (?:"(?P<file>.{1,600})"|\?\?\?), line (?P<line>0|[1-9][0-9]{0,6}|\?\?\?) in '
    r"(?P<function>.{1,600})"
)
_REST = ("  ...", "  <no Python frame>", "  <tstate is freed>")
"""Lines that faulthandler prints in place of frames."""

_MAX_THREADS = 20
_MAX_FRAMES = 100
_MAX_LINE = 300
_MAX_TEXT = 16_000


class Frame(NamedTuple):
    """A frame of a stack: the file as faulthandler writes it, in ASCII."""

    file: str
    line: int
    function: str


def last_stack(stderr: str) -> tuple[str, list[Frame]] | None:
    """Return the stacks of the last dump that a worker printed, the current thread first: their
    text and their frames; None without one.
    """
    # the lines and the frames of each thread: threads of one dump are separated by an empty line,
    # dumps are not
    dumps: list[dict[str, tuple[list[str], list[Frame]]]] = [{}]
    lines: list[str] | None = None
    frames: list[Frame] = []
    before = ""
    for line in stderr.split("\n"):
        # output before the dump may lack its line end
        if (head := _HEAD.search(line[-_MAX_LINE:])) is not None:
            if before or head["id"] in dumps[-1]:
                dumps.append({})
            lines, frames = dumps[-1][head["id"]] = [head.group()], []
        elif lines is not None and line:
            frame = _FRAME.fullmatch(line)
            if frame is None and line not in _REST:  # not printed by faulthandler
                dumps.append({})
                lines = None
            elif len(lines) <= _MAX_FRAMES:
                lines.append(line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "...")
                if (
                    frame is not None
                    and frame["file"] is not None
                    and frame["line"] not in ("???", "0")
                ):
                    frames.append(Frame(frame["file"], int(frame["line"]), frame["function"][:100]))
        before = line
    last = next(
        (
            threads.values()
            for threads in reversed(dumps)
            if any(frames for _, frames in threads.values())
        ),
        None,
    )
    if last is None:
        return None
    threads = sorted(last, key=lambda thread: thread[0][0].startswith("Thread"))[:_MAX_THREADS]
    text = "\n\n".join("\n".join(lines) for lines, _ in threads)
    if len(text) > _MAX_TEXT:
        text = text[:_MAX_TEXT].rpartition("\n")[0] + "\n  ..."
    return text, [frame for _, frames in threads for frame in frames]


def frame_within(files: Collection[str], frames: Iterable[Frame]) -> Frame | None:
    """Return the first of the frames that is in one of the files, if there is one."""
    names = {file.encode("ascii", "backslashreplace").decode("ascii") for file in files}
    # two Python blocks on one line of YAML have a suffix in their file names: ``#NAME``
    return next(
        (
            frame
            for frame in frames
            if frame.file in names or frame.file.rpartition("#")[0] in names
        ),
        None,
    )


def by_ending(case: Case, facts: Facts) -> Judged | None:
    """Return the result of a case whose process was killed, died, broke the protocol or sent no
    answer; None for any other.

    A TIMEOUT and a CRASH name the innermost line of the spec on the Python stack, if there is one.
    """
    ending = facts.ending
    if ending.timed_out:
        reason = "outlived its deadline"
    elif ending.signal is not None:
        names = {number.value: number.name for number in signal.Signals}
        reason = f"killed by {names.get(ending.signal, f'signal {ending.signal}')}"
    elif ending.exit_code != 0:
        reason = f"exit code {ending.exit_code}"
    elif facts.problem:
        return _unjudged(case, facts.problem)
    elif not facts.is_answered:
        reason = "ended without an answer"
    else:
        return None
    # a process that is killed by SIGKILL cannot print its stack
    stack = (
        last_stack(facts.stderr) if ending.timed_out or ending.signal != signal.SIGKILL else None
    )
    detail = NO_STACK if ending.timed_out else ""
    if stack is not None:
        detail = f"{STACK if ending.timed_out else LAST_STACK}\n{folded(stack[0])}"
    note = f" ({facts.problem or facts.note})" if facts.problem or facts.note else ""
    outcome = Outcome.TIMEOUT if ending.timed_out else Outcome.CRASH
    frame = frame_within(_python_files(case), stack[1]) if stack else None
    return _ended(case, outcome, reason, ending.phase, ending.step, frame, detail, note)


STACK = "Python stack when the time was up (most recent call first):"
LAST_STACK = "the last Python stack that it printed (most recent call first):"
NO_STACK = (
    "no Python stack could be had: the process was stopped, has its signals blocked, or its "
    "stderr is gone"
)

ENDS_PYTHON = ("builtins.SystemExit", "builtins.KeyboardInterrupt")
"""Exceptions that end a Python process. The worker catches them, so that it can report them."""


def ended_by_code(case: Case, surroundings: Surroundings, facts: Facts) -> Judged | None:
    """Return the result of a case whose code raised an exception that ends the process, if its spec
    does not expect it.
    """
    raised = [
        (index, step.raised)
        for index, step in enumerate(facts.steps)
        if not expects_raise(case.steps[index], surroundings)
    ]
    for index, error in [(len(facts.steps), facts.error), *raised]:
        if error is not None and error.type in ENDS_PYTHON:
            # an exception before the first step belongs to no step
            step = index if index > 0 or error.phase not in ("inputs", "import") else None
            name = error.type.rpartition(".")[2]
            what = f"{first_line(error.message)} ({name})" if name == "SystemExit" else name
            return _ended(
                case,
                Outcome.CRASH,
                what,
                error.phase,
                step,
                _frame_in_spec(case, error.traceback),
                folded(error.traceback),
            )
    return None


def _ended(
    case: Case,
    outcome: Outcome,
    what: str,
    phase: str,
    step: int | None,
    frame: Frame | None,
    detail: str,
    note: str = "",
) -> Judged:
    """Return a CRASH or a TIMEOUT in a phase, of a step if the case has several, at a line of the
    spec.
    """
    of_step = ""
    if step is not None and len(case.steps) > 1 and 0 <= step < len(case.steps):
        of_step = f" of step {step + 1} ({case.steps[step].kind})"
    in_spec = f", in {first_line(frame.function)} at line {frame.line} of the spec" if frame else ""
    reason = f"{what} while in phase '{phase}'{of_step}{in_spec}{note}"
    # a deadline is that of the whole case
    position = _place(case, frame, None if outcome is Outcome.TIMEOUT else step)
    return _unjudged(
        case, reason, position, detail, outcome=outcome, expected="an answer", phase=phase
    )


def _place(case: Case, frame: Frame | None, index: int | None) -> Position:
    """Return the line of a frame of the spec; else the position of a step, if there is one of that
    index; else that of the spec.
    """
    if frame is not None:
        return Position(file=case.spec, line=frame.line)
    return (
        case.steps[index].position
        if index is not None and 0 <= index < len(case.steps)
        else case.position
    )


def _frame_in_spec(case: Case, traceback: str) -> Frame | None:
    calls = filter(None, map(CALL.fullmatch, reversed(traceback.split("\n"))))
    return frame_within(
        _python_files(case),
        (Frame(call["file"], int(call["line"]), call["function"]) for call in calls),
    )


def _python_files(case: Case) -> set[str]:
    """Return the file names that the spec's own Python blocks have in tracebacks, without those of
    ``_defaults.yaml``.
    """
    scripts = [
        str(written["file"]) for step in case.steps if (written := python_of(step)) is not None
    ]
    files = [*(block.file for block in case.body.blocks), *scripts]
    return {file for file in files if posixpath.basename(file) == posixpath.basename(case.spec)}


def _unjudged(
    case: Case,
    reason: str,
    position: Position | None = None,
    detail: str = "",
    *,
    outcome: Outcome = Outcome.ERROR,
    expected: str = "",
    phase: str = "",
) -> Judged:
    """Return the result of a case that could not be judged: an ERROR, a CRASH or a TIMEOUT."""
    kind, place = outcome.label.lower(), position or case.position
    verdict = Verdict(
        kind=kind,
        status=Status.ERROR,
        position=place,
        expected=expected,
        observed=reason,
        detail=detail,
    )
    return Judged(
        outcome=outcome,
        reason=reason,
        failure_type=kind,
        verdicts=(verdict,),
        position=place,
        phase=phase,
    )
