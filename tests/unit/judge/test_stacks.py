"""The stack of a case whose time was up: cut out of whatever else the process printed, and never
more than it is.
"""

import time
from pathlib import Path
from typing import Any

import pytest

import torch_conformance
from tests.fakes import AT, COUNTED, case, place, step, verdict_of
from torch_conformance.judge.evidence import folded
from torch_conformance.judge.judge import frame_within, last_stack
from torch_conformance.model.case import CodeBlock
from torch_conformance.model.case_facts import Ending
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult

TIMED_OUT = Ending(signal=9, timed_out=True, phase="run")
ONE = """\
Current thread 0x00007f1b49272b80 (most recent call first):
  File "/lib/python3.11/selectors.py", line 415 in select
  File "specs/area/fake.yaml", line 9 in inner
  File "specs/area/fake.yaml", line 12 in <lambda>
  File "runner/torch_conformance/worker/case/run_case.py", line 50 in run
"""
TWO = """\
Thread 0x00007f1b487fc6c0 (most recent call first):
  File "/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f1b49272b80 (most recent call first):
  File "specs/area/fake.yaml", line 9 in inner
"""
SPEC = AT.file


FILE = f"/elsewhere/{SPEC}"
"""The spec's file as its Python names it."""

HUNG = ONE.replace(SPEC, FILE)


def block(file: str) -> CodeBlock:
    return CodeBlock(name="prelude", file=file, line=3, text="pass")


def timed_out(stderr: str, **more: Any) -> CaseResult:
    described = {"ref": "math:sqrt"}
    body = {
        "preludes": (block("/elsewhere/specs/area/_defaults.yaml"), block(FILE)),
        "functions": {"f": described},
    }
    return verdict_of(case(step(COUNTED), body=body), None, ending=TIMED_OUT, stderr=stderr, **more)


def text_of(stderr: str) -> str:
    found = last_stack(stderr)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    "before",
    ["", "a warning\n", "no line end: ", "é\u2028\x1b[31m\n", '  File "x", line 1 in f\n', "\n\n"],
)
@pytest.mark.parametrize("after", ["", "another thread says something\n", "\n\n", "half a li"])
def test_a_stack_is_cut_out_of_what_stands_around_it(before: str, after: str) -> None:
    assert text_of(before + ONE + after) == ONE.rstrip("\n")


def test_the_last_of_several_is_taken() -> None:
    later = ONE.replace("line 9", "line 10")
    for between in ("", "\n", "words\n"):
        assert text_of(ONE + between + later) == later.rstrip("\n")
    assert text_of(later + TWO) == text_of(TWO)
    assert text_of(
        ONE + "Current thread 0x1 (most recent call first):\nnot a frame\n"
    ) == ONE.rstrip("\n")


@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "words\n",
        "Traceback (most recent call last):\n" + ONE.partition("\n")[2],
        "Current thread 0x00007f1b49272b80 (most recent call first):\n",
        "Current thread 0x00007f1b49272b80 (most recent call first):\n  <no Python frame>\n",
        'Current thread 0xZZ (most recent call first):\n  File "x", line 1 in f\n',
        'Current thread 0x00007f1b49272b80 (most recent call first): and more\n  File "x", '
        "line 1 in f\n",
        "Current thread 0x00007f1b49272b80 (most recent call first):\n  File ???, line ??? in "
        "???\n",
    ],
)
def test_what_is_no_stack_is_none(stderr: str) -> None:
    assert last_stack(stderr) is None


@pytest.mark.parametrize(
    ("file", "written", "found"),
    [
        (SPEC, SPEC, True),
        (SPEC, f"{SPEC}#fn", True),
        (SPEC, f"{SPEC}x", False),
        (SPEC, f"x{SPEC}", False),
        (SPEC, "specs/area/_defaults.yaml", False),
        ("specs/é \U0001f600.yaml", "specs/\\xe9 \\U0001f600.yaml", True),
    ],
)
def test_a_call_of_the_spec_is_found_by_its_file(file: str, written: str, found: bool) -> None:
    stack = last_stack(
        'Current thread 0x1 (most recent call first):\n  File "x.py", line 1 in f\n  File '
        f'"{written}", line 7 in g\n'
    )
    assert stack is not None
    assert (frame_within({"other.yaml", file}, stack[1]) is not None) is found


# -- what a hostile process prints -----------------------------------------------------------------


def test_what_is_cut_out_is_bounded() -> None:
    frame = f'  File "{"f" * 500}", line 1 in {"g" * 500}\n'
    threads = "".join(
        f"Thread 0x{number:x} (most recent call first):\n{frame * 500}\n" for number in range(1, 60)
    )
    stack = last_stack(threads)
    assert stack is not None
    text, frames = stack
    assert len(text) <= 16_100
    assert text.endswith("\n  ...")
    assert max(map(len, text.split("\n"))) <= 300
    assert len(frames) <= 20 * 100
    assert all(len(frame.function) <= 100 for frame in frames)


@pytest.mark.parametrize(
    "piece",
    [
        "\n",
        "x",
        "Thread 0x1 (most recent call first):\n",
        "Current thread 0x1",
        '  File "',
        '  File "x", line 1 in f\n',
        "  ...\n",
    ],
)
def test_no_output_takes_long_to_search(piece: str) -> None:
    begun = time.process_time()
    last_stack(piece * (512_000 // len(piece)))
    many = "".join(f"Thread 0x{number:x} (most recent call first):\n" for number in range(10_000))
    last_stack(many)
    assert time.process_time() - begun < 5


# -- judged ----------------------------------------------------------------------------------------


def test_a_timeout_names_phase_line_and_stack() -> None:
    found = timed_out(f"words\n{HUNG}")
    assert found.outcome is Outcome.TIMEOUT
    assert (
        found.reason == "outlived its deadline while in phase 'run', in inner at line 9 of the spec"
    )
    assert found.position == place(9)
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.status, verdict.position) == ("timeout", Status.ERROR, place(9))
    assert (
        verdict.detail
        == "Python stack when the time was up (most recent call first):\n" + HUNG.rstrip("\n")
    )


@pytest.mark.parametrize(
    "file",
    ["elsewhere.py", "/elsewhere/specs/area/_defaults.yaml", "/other/specs/area/fake.yaml", SPEC],
)
def test_a_stack_outside_the_spec_points_to_the_spec_itself(file: str) -> None:
    found = timed_out(ONE.replace(SPEC, file))
    assert found.reason == "outlived its deadline while in phase 'run'"
    assert found.position == place(1)
    assert file in found.verdicts[0].detail


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending(signal=11, phase="run"), "killed by SIGSEGV while in phase 'run'"),
        (Ending(exit_code=3, phase="run"), "exit code 3 while in phase 'run'"),
        (Ending(exit_code=0, phase="run"), "ended without an answer while in phase 'run'"),
    ],
)
def test_a_crash_names_the_line_of_the_spec(ending: Ending, words: str) -> None:
    body = {"preludes": (block(FILE),)}
    found = verdict_of(
        case(step(COUNTED), body=body),
        None,
        ending=ending,
        stderr=f"Fatal Python error: Segmentation fault\n\n{HUNG}",
    )
    assert found.outcome is Outcome.CRASH
    assert found.reason == f"{words}, in inner at line 9 of the spec"
    assert found.position == place(9, 1)
    assert "line 9 in inner" in found.verdicts[0].detail


def test_a_crash_without_a_stack_names_its_step() -> None:
    steps = step(COUNTED, line=5), step(COUNTED, line=8)
    found = verdict_of(case(*steps), None, ending=Ending(signal=9, phase="run", step=1))
    assert found.reason == f"killed by SIGKILL while in phase 'run' of step 2 ({steps[1].kind})"
    assert found.position == steps[1].position
    alone = verdict_of(case(steps[0]), None, ending=Ending(signal=9, phase="run", step=0))
    assert alone.reason == "killed by SIGKILL while in phase 'run'"
    beyond = verdict_of(case(*steps), None, ending=Ending(signal=9, phase="run", step=7))
    assert beyond.reason == "killed by SIGKILL while in phase 'run'"


# -- folding ---------------------------------------------------------------------------------------


OURS = str(Path(torch_conformance.__file__).parent)


def traceback_of(*files: str) -> str:
    frames = "".join(
        f'  File "{file}", line {number}, in f{number}\n    code()\n    ^^^^^^\n'
        for number, file in enumerate(files, start=1)
    )
    return f"Traceback (most recent call last):\n{frames}ValueError: no"


def test_frames_of_ours_are_folded_and_counted() -> None:
    text = folded(
        traceback_of(
            f"{OURS}/worker/case.py",
            f"{OURS}/worker/steps.py",
            "a.yaml",
            "/x/site-packages/other/y.py",
        )
    )
    assert text.split("\n")[1] == "  ... 2 frames of torch-conformance ..."
    assert "f3" in text
    assert "f4" in text
    assert "steps.py" not in text
    assert text.endswith("ValueError: no")
