"""Random programs: the same texts for a seed, valid ones, and their folder."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torch_conformance.language import programs
from torch_conformance.language.load import inspect, load
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.optional.options import Selection
from torch_conformance.plan.selection import requested

_LONGEST = 100
_SOURCE = """\
summary: Random programs equal eager
backends: [cpu]
source: {programs: {seed: %d, count: %d}}
"""


def _source(folder: Path, seed: int, count: int, more: str = "") -> Path:
    path = folder / "finder.yaml"
    path.write_text(_SOURCE % (seed, count) + more)
    return path


def test_texts_are_those_of_the_seed_in_another_process(tmp_path: Path) -> None:
    command = (
        "from torch_conformance.language.programs import text_of;"
        "print(*(text_of({}, 7, number) for number in range(20)))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", command],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len({programs.text_of({}, seed, 0) for seed in range(20)}) == 20


def test_three_hundred_programs_are_valid_and_bounded(tmp_path: Path) -> None:
    inspection = inspect([_source(tmp_path, 11, 300)])
    assert not inspection.problems
    assert len(inspection.suite.cases) == 300
    assert all(case.on_request for case in inspection.suite.cases)
    assert inspection.suite.cases[3].id == "programs-4-s11-0003[backend=cpu]"
    texts = [document.content.decode() for document in inspection.suite.documents]
    bodies = [text.partition("):\n")[2].partition("return (")[0] for text in texts[:300]]
    assert all(3 <= len(re.findall(r"^ +v\d+ = ", body, re.MULTILINE)) <= 12 for body in bodies)
    for word in ("requires_grad", '"bfloat16"', '"int64"', "strides", "dynamic: true", ".add_(1)"):
        assert any(word in text for text in texts), word


def test_what_a_folder_has_is_read_and_not_made_again(tmp_path: Path) -> None:
    source, frozen = _source(tmp_path, 3, 2), tmp_path / "run" / "programs"
    suite = load([source], programs_folder=frozen)
    assert not frozen.exists()
    suite.freeze()
    first, second = sorted(frozen.iterdir())
    assert first.name == "programs-4-s3-0000.yaml"
    named = requested(suite.cases, suite.cases, Selection(), paths=[source], sources=suite.sources)
    assert named == list(suite.cases)
    old = frozen / "programs-0-s3-0000.yaml"
    first.rename(old)
    second.unlink()
    again = load([source], programs_folder=frozen)
    assert [case.id for case in again.cases] == ["programs-0-s3-0000[backend=cpu]"]
    again.freeze()
    assert list(frozen.iterdir()) == [old]


def test_keys_that_no_program_has(tmp_path: Path) -> None:
    source = _source(tmp_path, 3, 2, "compile: {dynamic: true}\ninputs: [1]\n")
    with pytest.raises(InvalidSpecs) as raised:
        load([source])
    assert [problem.code for problem in raised.value.diagnostics] == ["key-with-programs"] * 2


def test_a_sum_by_index_never_adds_what_it_adds_to() -> None:
    forms = [form.text for _, _, forms in programs.GROUPS for form in forms]
    adding = [text for text in forms if "_add" in text and ".add_" not in text]
    assert adding
    assert all(re.match(r"torch\.(?:zeros|ones)_like\(X\)", text) for text in adding)


def test_values_of_the_table() -> None:
    assert programs._at("2x-1", 3.0, 0.0) == 5.0
    assert programs._at("n", 3.0, 0.0) == 1.0
    assert programs._range("x,-0.5", (0.0, 2.0), (1.0, 1.0)) == (-0.5, 2.0)
    assert programs._range("xy", (-1.0, 2.0), (-3.0, 1.0)) == (-6.0, 3.0)
    assert programs._range("exp", (0.0, 0.0), (1.0, 1.0)) == (1.0, 1.0)


def test_the_generator_stays_small() -> None:
    lines = Path(programs.__file__).read_text().splitlines()
    assert len(lines) <= 600
    assert max(map(len, lines)) <= _LONGEST


def test_a_cast_that_may_return_its_operand_is_not_all_that_a_program_computes() -> None:
    for seed, number in itertools.product((6, 10), range(50)):
        text = programs.text_of({"backends": ["cpu"]}, seed, number)
        function = text.partition("\ninputs:")[0]
        returned = re.findall(r"v\d+", function.rpartition("return ")[2])
        casts = set(re.findall(r"(v\d+) = \w+\.to\(torch\.bfloat16\)\.to\(", function))
        assert set(returned) - casts, text
