"""How a case ended without a whole observation: crashes, hangs with their stacks, exceptions."""

import os
import posixpath
import re
import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import Position
from runner.core.expectation import Status
from runner.core.observation import Observation, Raised
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, Verdict, result_of
from runner.judge.evidence import Evidence, first_line
from runner.plan.worker_plan import expects_raise, python_of

_HEAD = re.compile(r"(?P<name>Current thread|Thread) (?P<id>0x[0-9a-f]{1,16})(?: \[.{0,100}\])? \(most recent call first\):\Z")
_FRAME = re.compile(r'  File (?:"(?P<file>.{1,600})"|\?\?\?), line (?P<line>0|[1-9][0-9]{0,6}|\?\?\?) in (?P<function>.{1,600})')
_REST = ("  ...", "  <no Python frame>", "  <tstate is freed>")
"""Lines that faulthandler prints in place of frames."""

_MAX_THREADS = 20
_MAX_FRAMES = 100
_MAX_LINE = 300
_MAX_TEXT = 16_000


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a stack: the file as faulthandler writes it, in ASCII."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Stack:
    """The stacks of all threads; the current thread is the first."""

    text: str
    frames: tuple[Frame, ...]

    def within(self, files: Collection[str]) -> Frame | None:
        """Return the most recent frame in one of the files, if there is one."""
        names = {file.encode("ascii", "backslashreplace").decode("ascii") for file in files}
        # two Python blocks on one line of YAML have a suffix in their file names: ``#NAME``
        return next((frame for frame in self.frames if frame.file in names or frame.file.rpartition("#")[0] in names), None)


# -- tracebacks -----------------------------------------------------------------------------------------------------

_CALL = re.compile(r'  File "(?P<file>[^"\n]*)", line (?P<line>[0-9]+),? in (?P<function>.*)')
_OWN = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"
_OF_TORCH = re.compile(r"(?:^|/)(?:torch|triton)/.*\.py(?:\Z|:)")
_BETWEEN = re.compile(r"/(?:contextlib|functools|threading)\.py\Z|<frozen runpy>\Z|<string>\Z")
"""Frames of the standard library between frames of torch, without information."""

_TORCH_FRAMES = 3
"""How many innermost frames of torch are shown; of the outermost ones, one is shown."""


def frames_of(traceback: str) -> tuple[Frame, ...]:
    """Return the calls of a traceback or of faulthandler's stack, in its order."""
    found = (_CALL.fullmatch(line) for line in traceback.split("\n"))
    return tuple(Frame(call["file"], int(call["line"]), call["function"]) for call in found if call)


def folded(text: str) -> str:
    """Return a traceback or a stack in which the frames of this program, and most frames of torch, are replaced by their count."""
    lines = text.split("\n")
    blocks = _calls(lines)
    shown: list[str] = []
    for inside, run in _runs(blocks):
        shown += _folded_run(run, recent_first="most recent call first" in text) if inside else [line for _, part in run for line in part]
    return "\n".join(shown)


def _calls(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the lines in blocks: a frame's lines with its file, every other line alone with an empty file name."""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        call = _CALL.fullmatch(line)
        if call is not None:
            blocks.append((call["file"], [line]))
        elif blocks and blocks[-1][0] and line.startswith("    "):
            blocks[-1][1].append(line)
        else:
            blocks.append(("", [line]))
    return blocks


def _runs(blocks: Sequence[tuple[str, list[str]]]) -> Iterator[tuple[bool, list[tuple[str, list[str]]]]]:
    """Yield runs of blocks: either frames of this program and of torch, or everything else."""
    run: list[tuple[str, list[str]]] = []
    was_inside = False
    for file, lines in blocks:
        inside = bool(file) and (file.startswith(_OWN) or bool(_OF_TORCH.search(file)) or (was_inside and bool(_BETWEEN.search(file))))
        if inside is not was_inside:
            yield was_inside, run
            run, was_inside = [], inside
        run.append((file, lines))
    yield was_inside, run


def _folded_run(run: Sequence[tuple[str, list[str]]], *, recent_first: bool) -> Iterator[str]:
    of_torch = [index for index, (file, _) in enumerate(run) if _OF_TORCH.search(file) and not file.startswith(_OWN)]
    first, last = (_TORCH_FRAMES, 1) if recent_first else (1, _TORCH_FRAMES)
    shown = {*of_torch[:first], *of_torch[-last:]}
    hidden = 0
    for index, (_, lines) in enumerate(run):
        if index not in shown:
            hidden += 1
            continue
        yield from _fold(hidden, bool(of_torch))
        hidden = 0
        yield from lines
    yield from _fold(hidden, bool(of_torch))


def _fold(count: int, has_torch: bool) -> Iterator[str]:
    if count:
        of = "torch and torch-conformance" if has_torch else "torch-conformance"
        yield f"  ... {count} frame{'' if count == 1 else 's'} of {of} ..."


@dataclass
class _Thread:
    is_current: bool
    lines: list[str]
    frames: list[Frame] = field(default_factory=list)


def last_stack(stderr: str) -> Stack | None:
    """Return the stacks of the last dump that a worker printed; None where there is none."""
    last: dict[str, _Thread] = {}
    for threads in _dumps(stderr):
        if any(thread.frames for thread in threads.values()):
            last = threads
    if not last:
        return None
    ordered = sorted(last.values(), key=lambda thread: not thread.is_current)[:_MAX_THREADS]
    text = "\n\n".join("\n".join(thread.lines) for thread in ordered)
    if len(text) > _MAX_TEXT:
        text = text[:_MAX_TEXT].rpartition("\n")[0] + "\n  ..."
    return Stack(text, tuple(frame for thread in ordered for frame in thread.frames))


def _dumps(stderr: str) -> Iterator[dict[str, _Thread]]:
    """Yield the threads of each dump: threads of one dump are separated by an empty line, dumps are not."""
    threads: dict[str, _Thread] = {}
    latest: _Thread | None = None
    before = ""
    for line in stderr.split("\n"):
        # output before the dump may lack its line end
        head = _HEAD.search(line[-_MAX_LINE:])
        if head is not None:
            if before or head["id"] in threads:
                yield threads
                threads = {}
            latest = threads[head["id"]] = _Thread(head["name"] != "Thread", [head.group()])
        elif latest is not None and line and not _take_frame(latest, line):
            yield threads
            threads, latest = {}, None
        before = line
    yield threads


def _take_frame(thread: _Thread, line: str) -> bool:
    """Add a line to a thread; return False if faulthandler did not print it."""
    found = _FRAME.fullmatch(line)
    if found is None and line not in _REST:
        return False
    if len(thread.lines) <= _MAX_FRAMES:
        thread.lines.append(line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "...")
        if found is not None and found["file"] is not None and found["line"] not in ("???", "0"):
            thread.frames.append(Frame(found["file"], int(found["line"]), found["function"][:100]))
    return True


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
