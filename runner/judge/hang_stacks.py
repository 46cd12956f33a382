"""Extracts the Python stacks that a worker printed at its deadline from its stderr.

The runner sends a signal, and ``faulthandler`` prints the stacks. The rest of stderr is untrusted, and may look like a stack. So only
text in faulthandler's format is extracted, only the last stacks, with size limits, and reports show them as output of the process.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

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
