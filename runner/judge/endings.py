"""Results of cases whose process did not end normally, or whose code ended the process: crash, timeout, error. Pure."""

import posixpath
import signal
from dataclasses import replace

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import Position
from runner.core.expectation import Status
from runner.core.observation import Observation, Raised
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, Verdict, result_of
from runner.judge.evidence import Evidence, first_line
from runner.judge.hang_stacks import Frame, Stack, folded, frames_of, last_stack
from runner.plan.worker_plan import expects_raise, python_of

STACK = "Python stack when the time was up (most recent call first):"
LAST_STACK = "the last Python stack that it printed (most recent call first):"
NO_STACK = "no Python stack could be had: the process was stopped, has its signals blocked, or its stderr is gone"


ENDS_PYTHON = ("builtins.SystemExit", "builtins.KeyboardInterrupt")
"""Exceptions that end a Python process. The worker catches them, so that it can report them."""


def by_ending(case: Case, evidence: Evidence) -> CaseResult | None:
    """Return the result of a case whose process was killed, died, broke the protocol or sent no answer; None for any other."""
    ending = evidence.ending
    where = _in_phase(case, ending.phase, ending.step)
    note = evidence.problem or evidence.note
    if ending.timed_out:
        return replace(_timed_out(case, where, note, last_stack(evidence.stderr)), phase=ending.phase)
    if ending.signal is not None:
        return _died(case, evidence, f"killed by {_signal_name(ending.signal)} {where}")
    if ending.exit_code != 0:
        return _died(case, evidence, f"exit code {ending.exit_code} {where}")
    if evidence.problem:
        return error_of(case, evidence.problem)
    if evidence.observation is None:
        return _died(case, evidence, f"ended without an answer {where}")
    return None


def _in_phase(case: Case, phase: str, index: int | None) -> str:
    """Return the phase in words, with its step if the case has several."""
    if index is None or len(case.steps) < 2 or not 0 <= index < len(case.steps):
        return f"while in phase '{phase}'"
    return f"while in phase '{phase}' of step {index + 1} ({case.steps[index].kind})"


def _died(case: Case, evidence: Evidence, reason: str) -> CaseResult:
    """Return a CRASH at the innermost line of the spec on the stack, if there is one, else at the step."""
    phase = evidence.ending.phase
    note = evidence.problem or evidence.note
    # a process that is killed by SIGKILL cannot print its stack
    stack = last_stack(evidence.stderr) if evidence.ending.signal != signal.SIGKILL else None
    frame = stack.within(_python_files(case)) if stack is not None else None
    detail = f"{LAST_STACK}\n{folded(stack.text)}" if stack is not None else ""
    reason += f" ({note})" if note else ""
    if frame is None:
        ended = _ended(case, Outcome.CRASH, reason, detail=detail, position=_place_of_step(case, evidence.ending.step))
        return replace(ended, phase=phase)
    position = Position(file=case.spec, line=frame.line)
    return replace(_ended(case, Outcome.CRASH, f"{reason}{_in_spec(frame)}", detail=detail, position=position), phase=phase)


def ended_by_code(case: Case, here: Surroundings, observation: Observation) -> CaseResult | None:
    """Return the result of a case whose code raised an exception that ends the process, if its spec does not expect it."""
    found = [(index, step.raised) for index, step in enumerate(observation.steps) if not expects_raise(case.steps[index], here)]
    for index, error in [(len(observation.steps), observation.error), *found]:
        if error is not None and error.type in ENDS_PYTHON:
            # an exception before the first step belongs to no step
            step = index if index > 0 or error.phase not in ("inputs", "import") else None
            return _exited(case, error, step)
    return None


def _exited(case: Case, error: Raised, step: int | None) -> CaseResult:
    name = error.type.rpartition(".")[2]
    what = f"{first_line(error.message)} ({name})" if name == "SystemExit" else name
    frame = _frame_in_spec(case, error.traceback)
    reason = f"{what} {_in_phase(case, error.phase, step)}{_in_spec(frame) if frame else ''}"
    position = Position(file=case.spec, line=frame.line) if frame else _place_of_step(case, step)
    return replace(_ended(case, Outcome.CRASH, reason, detail=folded(error.traceback), position=position), phase=error.phase)


def _in_spec(frame: Frame) -> str:
    return f", in {first_line(frame.function)} at line {frame.line} of the spec"


def place_of_error(case: Case, error: Raised, done: int) -> Position:
    """Return the innermost line of the spec in a traceback; else the position of the first step that was not carried out."""
    if frame := _frame_in_spec(case, error.traceback):
        return Position(file=case.spec, line=frame.line)
    return _place_of_step(case, done or None)


def _frame_in_spec(case: Case, traceback: str) -> Frame | None:
    return Stack("", tuple(reversed(frames_of(traceback)))).within(_python_files(case))


def _place_of_step(case: Case, index: int | None) -> Position:
    return case.steps[index].position if index is not None and 0 <= index < len(case.steps) else case.position


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _timed_out(case: Case, where: str, note: str, stack: Stack | None) -> CaseResult:
    """Return a TIMEOUT with the phase, the Python stack, and the innermost line of the spec on the stack."""
    reason = f"outlived its deadline {where}"
    if stack is None:
        return _ended(case, Outcome.TIMEOUT, reason, note, detail=NO_STACK)
    detail = f"{STACK}\n{folded(stack.text)}"
    frame = stack.within(_python_files(case))
    if frame is None:
        return _ended(case, Outcome.TIMEOUT, reason, note, detail=detail)
    position = Position(file=case.spec, line=frame.line)
    return _ended(case, Outcome.TIMEOUT, f"{reason}{_in_spec(frame)}", note, detail=detail, position=position)


def _python_files(case: Case) -> set[str]:
    """Return the file names that the spec's own Python blocks have in tracebacks, without those of ``_defaults.yaml``."""
    scripts = [str(written["file"]) for step in case.steps if (written := python_of(step)) is not None]
    files = [*(block.file for block in case.body.blocks), *scripts]
    return {file for file in files if posixpath.basename(file) == posixpath.basename(case.spec)}


def _ended(case: Case, outcome: Outcome, reason: str, note: str = "", *, detail: str = "", position: Position | None = None) -> CaseResult:
    text = reason + (f" ({note})" if note else "")
    kind = outcome.label.lower()
    place = position or case.position
    verdict = Verdict(kind=kind, status=Status.ERROR, position=place, expected="an answer", observed=text, detail=detail)
    return result_of(case, outcome, text, kind, verdicts=(verdict,), position=place)


def error_of(case: Case, reason: str, position: Position | None = None, detail: str = "") -> CaseResult:
    """Return an ERROR: the case could not be judged."""
    place = position or case.position
    verdict = Verdict(kind="error", status=Status.ERROR, position=place, observed=reason, detail=detail)
    return result_of(case, Outcome.ERROR, reason, "error", verdicts=(verdict,), position=place)
