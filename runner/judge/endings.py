"""How a case ended without a whole observation: crashes, hangs with their stacks, exceptions."""

import itertools
import os
import posixpath
import re
import signal
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from runner.judge.evidence import first_line
from runner.model.case import Case
from runner.model.case_facts import Facts, Raised
from runner.model.conditions import Surroundings
from runner.model.diagnostics import Position
from runner.model.expectation import Status, Verdict
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult, result_of
from runner.plan.worker_plan import expects_raise, python_of

_HEAD = re.compile(r"(?P<name>Current thread|Thread) (?P<id>0x[0-9a-f]{1,16})(?: \[.{0,100}\])? \(most recent call first\):\Z")
_FRAME = re.compile(r'  File (?:"(?P<file>.{1,600})"|\?\?\?), line (?P<line>0|[1-9][0-9]{0,6}|\?\?\?) in (?P<function>.{1,600})')
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


# -- tracebacks -----------------------------------------------------------------------------------------------------

_CALL = re.compile(r'  File "(?P<file>[^"\n]*)", line (?P<line>[0-9]+),? in (?P<function>.*)')
_OWN = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"
_OF_TORCH = re.compile(r"(?:^|/)(?:torch|triton)/.*\.py(?:\Z|:)")
_BETWEEN = re.compile(r"/(?:contextlib|functools|threading)\.py\Z|<frozen runpy>\Z|<string>\Z")
"""Frames of the standard library between frames of torch, without information."""

_TORCH_FRAMES = 3
"""How many innermost frames of torch are shown; of the outermost ones, one is shown."""


def folded(text: str) -> str:
    """Return a traceback or a stack in which the frames of this program, and most frames of torch, are replaced by their count."""
    # a frame's lines with its file; every other line alone with an empty file name
    blocks: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if (call := _CALL.fullmatch(line)) is not None:
            blocks.append((call["file"], [line]))
        elif blocks and blocks[-1][0] and line.startswith("    "):
            blocks[-1][1].append(line)
        else:
            blocks.append(("", [line]))
    is_inside, inside = False, []
    for file, _ in blocks:
        is_inside = bool(file) and (file.startswith(_OWN) or bool(_OF_TORCH.search(file)) or (is_inside and bool(_BETWEEN.search(file))))
        inside.append(is_inside)
    recent_first = "most recent call first" in text
    first, last = (_TORCH_FRAMES, 1) if recent_first else (1, _TORCH_FRAMES)
    shown: list[str] = []
    for is_inside, group in itertools.groupby(zip(inside, blocks, strict=True), key=lambda pair: pair[0]):
        run = [block for _, block in group]
        of_torch = [index for index, (file, _) in enumerate(run) if _OF_TORCH.search(file) and not file.startswith(_OWN)]
        kept = {*of_torch[:first], *of_torch[-last:]} if is_inside else {*range(len(run))}
        of = "torch and torch-conformance" if of_torch else "torch-conformance"
        for is_kept, part in itertools.groupby(range(len(run)), key=kept.__contains__):
            indices = list(part)
            if is_kept:
                shown += [line for index in indices for line in run[index][1]]
            else:
                shown.append(f"  ... {len(indices)} frame{'' if len(indices) == 1 else 's'} of {of} ...")
    return "\n".join(shown)


def last_stack(stderr: str) -> tuple[str, list[Frame]] | None:
    """Return the stacks of the last dump that a worker printed, the current thread first: their text and their frames; None without one."""
    # the lines and the frames of each thread: threads of one dump are separated by an empty line, dumps are not
    dumps: list[dict[str, tuple[list[str], list[Frame]]]] = [{}]
    lines: list[str] | None = None
    frames: list[Frame] = []
    before = ""
    for line in stderr.split("\n"):
        # output before the dump may lack its line end
        head = _HEAD.search(line[-_MAX_LINE:])
        if head is not None:
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
                if frame is not None and frame["file"] is not None and frame["line"] not in ("???", "0"):
                    frames.append(Frame(frame["file"], int(frame["line"]), frame["function"][:100]))
        before = line
    last = next((threads.values() for threads in reversed(dumps) if any(frames for _, frames in threads.values())), None)
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
    return next((frame for frame in frames if frame.file in names or frame.file.rpartition("#")[0] in names), None)


STACK = "Python stack when the time was up (most recent call first):"
LAST_STACK = "the last Python stack that it printed (most recent call first):"
NO_STACK = "no Python stack could be had: the process was stopped, has its signals blocked, or its stderr is gone"


ENDS_PYTHON = ("builtins.SystemExit", "builtins.KeyboardInterrupt")
"""Exceptions that end a Python process. The worker catches them, so that it can report them."""


def by_ending(case: Case, facts: Facts) -> CaseResult | None:
    """Return the result of a case whose process was killed, died, broke the protocol or sent no answer; None for any other.

    A TIMEOUT and a CRASH name the innermost line of the spec on the Python stack, if there is one.
    """
    ending = facts.ending
    where = _in_phase(case, ending.phase, ending.step)
    if ending.timed_out:
        reason = f"outlived its deadline {where}"
    elif ending.signal is not None:
        names = {number.value: number.name for number in signal.Signals}
        reason = f"killed by {names.get(ending.signal, f'signal {ending.signal}')} {where}"
    elif ending.exit_code != 0:
        reason = f"exit code {ending.exit_code} {where}"
    elif facts.problem:
        return error_of(case, facts.problem)
    elif not facts.is_answered:
        reason = f"ended without an answer {where}"
    else:
        return None
    outcome = Outcome.TIMEOUT if ending.timed_out else Outcome.CRASH
    # a process that is killed by SIGKILL cannot print its stack
    stack = last_stack(facts.stderr) if ending.timed_out or ending.signal != signal.SIGKILL else None
    detail = NO_STACK if ending.timed_out else ""
    frame = None
    if stack is not None:
        detail = f"{STACK if ending.timed_out else LAST_STACK}\n{folded(stack[0])}"
        frame = frame_within(_python_files(case), stack[1])
    note = f" ({facts.problem or facts.note})" if facts.problem or facts.note else ""
    step = None if ending.timed_out else ending.step
    return _ended(case, outcome, f"{reason}{_in_spec(frame)}{note}", ending.phase, detail, _place(case, frame, step))


def ended_by_code(case: Case, surroundings: Surroundings, facts: Facts) -> CaseResult | None:
    """Return the result of a case whose code raised an exception that ends the process, if its spec does not expect it."""
    raised = [(index, step.raised) for index, step in enumerate(facts.steps) if not expects_raise(case.steps[index], surroundings)]
    for index, error in [(len(facts.steps), facts.error), *raised]:
        if error is not None and error.type in ENDS_PYTHON:
            # an exception before the first step belongs to no step
            step = index if index > 0 or error.phase not in ("inputs", "import") else None
            name = error.type.rpartition(".")[2]
            what = f"{first_line(error.message)} ({name})" if name == "SystemExit" else name
            frame = _frame_in_spec(case, error.traceback)
            reason = f"{what} {_in_phase(case, error.phase, step)}{_in_spec(frame)}"
            return _ended(case, Outcome.CRASH, reason, error.phase, folded(error.traceback), _place(case, frame, step))
    return None


def place_of_error(case: Case, error: Raised, done: int) -> Position:
    """Return the innermost line of the spec in a traceback; else the position of the first step that was not carried out."""
    return _place(case, _frame_in_spec(case, error.traceback), done or None)


def _in_phase(case: Case, phase: str, index: int | None) -> str:
    """Return the phase in words, with its step if the case has several."""
    if index is None or len(case.steps) < 2 or not 0 <= index < len(case.steps):
        return f"while in phase '{phase}'"
    return f"while in phase '{phase}' of step {index + 1} ({case.steps[index].kind})"


def _in_spec(frame: Frame | None) -> str:
    return f", in {first_line(frame.function)} at line {frame.line} of the spec" if frame else ""


def _place(case: Case, frame: Frame | None, index: int | None) -> Position:
    """Return the line of a frame of the spec; else the position of a step, if there is one of that index; else that of the spec."""
    if frame is not None:
        return Position(file=case.spec, line=frame.line)
    return case.steps[index].position if index is not None and 0 <= index < len(case.steps) else case.position


def _frame_in_spec(case: Case, traceback: str) -> Frame | None:
    calls = filter(None, map(_CALL.fullmatch, reversed(traceback.split("\n"))))
    return frame_within(_python_files(case), (Frame(call["file"], int(call["line"]), call["function"]) for call in calls))


def _python_files(case: Case) -> set[str]:
    """Return the file names that the spec's own Python blocks have in tracebacks, without those of ``_defaults.yaml``."""
    scripts = [str(written["file"]) for step in case.steps if (written := python_of(step)) is not None]
    files = [*(block.file for block in case.body.blocks), *scripts]
    return {file for file in files if posixpath.basename(file) == posixpath.basename(case.spec)}


def _ended(case: Case, outcome: Outcome, reason: str, phase: str, detail: str, position: Position) -> CaseResult:
    kind = outcome.label.lower()
    verdict = Verdict(kind=kind, status=Status.ERROR, position=position, expected="an answer", observed=reason, detail=detail)
    return replace(result_of(case, outcome, reason, kind, verdicts=(verdict,), position=position), phase=phase)


def error_of(case: Case, reason: str, position: Position | None = None, detail: str = "") -> CaseResult:
    """Return an ERROR: the case could not be judged."""
    place = position or case.position
    verdict = Verdict(kind="error", status=Status.ERROR, position=place, observed=reason, detail=detail)
    return result_of(case, Outcome.ERROR, reason, "error", verdicts=(verdict,), position=place)
