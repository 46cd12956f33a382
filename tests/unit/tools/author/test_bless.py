"""``bless``: what recorded runs may and may not turn into claims, from a run to a patch that is
judged again.
"""

import itertools
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import fakes
from tests.fakes import (
    ENDED,
    HERE,
    close_facts,
    close_leaf,
    exception,
    observation,
    seen,
    use_executor,
)
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.language.load import load
from torch_conformance.model.case_facts import Ending
from torch_conformance.model.document import Document
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.author.blessed_counts import NotBlessed, Row, counted, expression
from torch_conformance.tools.author.commands.bless import patch

MISS, HIT = "fxgraph_cache_miss", "fxgraph_cache_hit"
SPEC = """\
# what a reader should know, above everything
summary: A product of two matrices is compiled once   # {odd}  spacing
backends: [cpu]
matrix: {dynamic: [true, false], dtype: [float32, float64]}
function: |
  def fn(x, y):  # a comment of Python
      return x @ y
inputs: [{rand: [4, 4], dtype: "{{ dtype }}"}, {rand: [4, 4], dtype: "{{ dtype }}"}]
compile: {dynamic: "{{ dynamic }}"}
expect:
  # about the counters
  - counter: {inductor.fxgraph_cache_miss: 1}   # why one
"""
Facts = Callable[[str], Mapping[str, Any]]
Bless = Callable[..., tuple[int, str, str]]


def misses(count: int) -> dict[str, Any]:
    return seen(counters={"inductor": {MISS: count}})


class Runs:
    """Records runs of one spec with facts of the test's choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.monkeypatch = monkeypatch
        self.spec = folder / "specs" / "area" / "one.yaml"
        self.spec.parent.mkdir(parents=True)
        self.write(SPEC)
        self.crashing = "no case"

    def write(self, text: str) -> None:
        self.spec.write_text(text, encoding="utf-8")

    def record(self, out: str, facts: Facts, *options: str) -> int:
        def answer(job: Job) -> Execution:
            assert job.plan is not None
            case_id = job.plan["id"]
            own = dict(facts(case_id))
            sent = observation(own, id=case_id)
            return Execution(
                job=job,
                observation=sent,
                ending=Ending(signal=11, phase="run") if self.crashing in case_id else ENDED,
                seconds=1.0,
                isolation="fork",
            )

        use_executor(self.monkeypatch, answer)
        return main(["run", "specs", "--out", out, *options])

    def on(self, **facts: Any) -> None:
        """Let the next runs be on a machine with these facts."""
        for name, value in facts.items():
            self.monkeypatch.setitem(fakes.FACTS, name, value)


@pytest.fixture
def runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch, here)


@pytest.fixture
def bless(capsys: pytest.CaptureFixture[str]) -> Bless:
    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["bless", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def applied(runs: Runs, patch: str) -> str:
    done = subprocess.run(
        ["git", "apply"], input=patch, text=True, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return runs.spec.read_text(encoding="utf-8")


# -- counts ----------------------------------------------------------------------------------------


def test_a_count_that_all_cases_observed_is_the_only_change_of_the_file(
    runs: Runs, bless: Bless
) -> None:
    assert runs.record("red", lambda _: misses(2)) == ExitCode.FAILED
    code, patch, note = bless("red")
    assert code == ExitCode.OK
    assert "4 red cases blessed in 1 spec: pass the output to 'git apply'" in note
    assert bless("red", "--select", "nothing*")[0] == ExitCode.NOTHING
    selected = bless("red", "--select", "*dynamic=true*")[1]
    assert (
        '+  - counter: {inductor.fxgraph_cache_miss: "{{ 2 if dynamic else 1 }}"}   # why one\n'
        in selected
    )
    assert applied(runs, patch) == SPEC.replace("cache_miss: 1}", "cache_miss: 2}")
    code, patch, note = bless("red")
    assert (code, patch) == (ExitCode.USAGE, "")  # the spec is not the one that was run
    assert "not the file that the run" in note
    runs.write(SPEC)
    assert bless("red", "--write")[:2] == (ExitCode.OK, "")
    assert runs.spec.read_text(encoding="utf-8") == SPEC.replace("cache_miss: 1}", "cache_miss: 2}")


def row(value: int, **params: Any) -> Row:
    return Row(params, "cpu", HERE, old=1, value=value, entry=None, is_recorded=True)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((2, 2, 2, 2), 2),
        ((2, 2, 1, 1), "{{ 2 if dynamic else 1 }}"),
        ((1, 2, 1, 2), "{{ 2 if dtype == 'float64' else 1 }}"),
        ((1, 3, 1, 1), "{{ 3 if dynamic and dtype == 'float64' else 1 }}"),
        (
            (1, 2, 3, 1),
            "{{ 2 if dynamic and dtype == 'float64' else 3 if not dynamic and dtype == "
            "'float32' else 1 }}",
        ),
    ],
)
def test_cases_of_one_line_are_told_apart_by_the_fewest_keys_of_the_matrix(
    values: Any, text: object
) -> None:
    points = itertools.product([True, False], ["float32", "float64"])
    rows = [
        row(value, dynamic=dynamic, dtype=dtype)
        for (dynamic, dtype), value in zip(points, values, strict=True)
    ]
    assert expression(rows) == text


def test_values_of_the_matrix_that_no_template_can_name_are_not_written() -> None:
    with pytest.raises(NotBlessed, match="no one or two of its keys"):
        expression([row(1, s="a' or '"), row(2, s=[1])])


def test_cases_that_no_run_has_keep_their_claim_under_the_smallest_condition(
    runs: Runs, bless: Bless
) -> None:
    runs.write(SPEC.replace("backends: [cpu]", "backends: [cpu, cuda]"))
    runs.record("red", lambda _: misses(2), "--backend", "cpu")
    text = applied(runs, bless("red")[1])
    assert "fxgraph_cache_miss: [{when: {device: cpu}, value: 2}, {value: 1}]}   # why one" in text
    by_backend = {
        case.backend: case.steps[0].expectations[0].body for case in load([Path("specs")]).cases
    }
    assert by_backend.keys() == {"cpu", "cuda"}


def test_machines_get_the_smallest_condition_that_explains_them(runs: Runs, bless: Bless) -> None:
    runs.record("here", lambda _: misses(2))
    runs.on(torch="2.12.1")
    runs.record("there", lambda _: misses(1))
    code, patch, _ = bless("here", "there")
    assert code == ExitCode.OK
    assert 'cache_miss: [{when: {torch: ">=2.13.0"}, value: 2}, {value: 1}]}' in applied(
        runs, patch
    )


def test_what_varies_on_one_machine_is_a_range(runs: Runs, bless: Bless) -> None:
    runs.record("a", lambda _: misses(2))
    runs.record("b", lambda _: misses(4))
    assert "  - counter: {inductor.fxgraph_cache_miss: {min: 2, max: 4}}   # why one\n" in applied(
        runs, bless("a", "b")[1]
    )


@pytest.mark.nightly(reason="it runs cases, as the other tests of patches do")
def test_machines_that_no_condition_tells_apart_are_not_averaged(runs: Runs, bless: Bless) -> None:
    runs.record("a", lambda _: misses(2))
    runs.on(cpu="another")
    runs.record("b", lambda _: misses(4))
    code, patch, note = bless("a", "b")
    assert (code, patch) == (ExitCode.FAILED, "")
    assert "no condition of the language tells them apart" in note


@pytest.mark.parametrize(
    ("numbers", "old", "value"),
    [
        ([2], 1, 2),
        ([2, 4, 3], 1, {"min": 2, "max": 4}),
        ([0], 0, 0),
        ([0], {"max": 3}, 0),
        ([0], 1, "it never happens"),
        ([0, 2], 1, "it never happens"),
        ([0], {"min": 1}, "it never happens"),
        ([0, 2], {"max": 1}, "unstable: 0 to 2"),
    ],
)
def test_a_claim_that_something_happens_never_becomes_that_nothing_does(
    numbers: list[int], old: Any, value: Any
) -> None:
    if isinstance(value, str):
        with pytest.raises(NotBlessed, match=value):
            counted(numbers, old)
    else:
        assert counted(numbers, old) == value


# -- what is never blessed -------------------------------------------------------------------------

BOTH = SPEC + "  - close: {to: eager}\n"


def test_a_wrong_answer_is_never_blessed_nor_what_it_counted(runs: Runs, bless: Bless) -> None:
    runs.write(BOTH)
    wrong = close_facts(close_leaf(excess=1.0, mismatches=3, max_abs=1.0))
    right = close_facts(close_leaf())

    def facts(name: str) -> dict[str, Any]:
        return {**misses(2), "measured": {"1": wrong if "dynamic=true" in name else right}}

    runs.record("red", facts)
    code, patch, note = bless("red")
    assert code == ExitCode.FAILED
    assert note.count("not blessed: ") == 2
    assert "close is never blessed" in note
    assert "{{ 1 if dynamic else 2 }}" in applied(
        runs, patch
    )  # the wrong cases keep their claim, and stay red
    runs.write(BOTH)
    runs.record("all", lambda _: {**misses(2), "measured": {"1": wrong}})
    assert bless("all")[:2] == (ExitCode.FAILED, "")


def test_crashes_exceptions_proofs_and_waived_failures_are_never_blessed(
    runs: Runs, bless: Bless
) -> None:
    """Of four cases of one line, one crashes, one raises, one fell back, and one failed as its
    waiver says.
    """
    Path("known.yaml").write_text(
        "waivers:\n  - {cases: '*dynamic=false,dtype=float64*', failure: {type: counter, "
        "match: 'miss 1, observed 2'}, "
        "reason: A known one, issue: J-1, until: 2099-01-01}\n"
    )

    def facts(name: str) -> dict[str, Any]:
        if "dynamic=false,dtype=float32" in name:
            return {**misses(1), "graphs": [], "executed": {}, "entered": 0}
        return (
            {**misses(2), "raised": exception()}
            if "dynamic=true,dtype=float64" in name
            else misses(2)
        )

    runs.crashing = "dynamic=true,dtype=float32"
    runs.record("red", facts, "--waivers", "known.yaml")
    code, patch, note = bless("red")
    assert (code, patch) == (ExitCode.FAILED, "")
    assert note.count("not blessed: ") == 3
    assert [
        word for word in ("CRASH", "raised is never blessed", "FELL_BACK") if word not in note
    ] == []


def test_an_observation_that_was_changed_is_refused(runs: Runs, bless: Bless) -> None:
    runs.record("red", lambda _: misses(2))
    (found, *_) = sorted(Path("red").glob("cases/*/observation.json"))
    found.write_text(
        found.read_text()
        .replace(f'"{MISS}": 2', f'"{MISS}": 9')
        .replace(f'"{MISS}":2', f'"{MISS}":9')
    )
    assert bless("red")[:2] == (ExitCode.USAGE, "")


# -- files in many forms: the patch changes the claim alone ----------------------------------------

CLAIM = "  - counter: {inductor.fxgraph_cache_miss: 1}   # why one\n"
FORMS = {
    "block": (
        "  - counter:\n      inductor.fxgraph_cache_hit: 0   # none\n      "
        "inductor.fxgraph_cache_miss: 1\n",
        "  - counter:\n      inductor.fxgraph_cache_hit: 0   # none\n      "
        "inductor.fxgraph_cache_miss: 2\n",
    ),
    "a template": (
        '  - counter: {inductor.fxgraph_cache_miss: "{{ 1 if dynamic else 1 }}"}\n',
        "  - counter: {inductor.fxgraph_cache_miss: 2}\n",
    ),
    "tabs": (
        "  - counter:\t{inductor.fxgraph_cache_miss:\t1}\t# why\there\n",
        "  - counter:\t{inductor.fxgraph_cache_miss:\t2}\t# why\there\n",
    ),
    "no last line end": (
        "  - counter: {inductor.fxgraph_cache_miss: 1}",
        "  - counter: {inductor.fxgraph_cache_miss: 2}",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_claim_changes_and_its_form_stays(runs: Runs, bless: Bless, form: str) -> None:
    before, after = FORMS[form]
    runs.write(SPEC.replace(CLAIM, before))
    assert runs.record("a", lambda _: misses(2)) == ExitCode.FAILED
    assert applied(runs, bless("a")[1]) == SPEC.replace(CLAIM, after)


def test_a_value_on_several_lines_is_refused(runs: Runs, bless: Bless) -> None:
    runs.write(
        SPEC.replace(CLAIM, "  - counter:\n      inductor.fxgraph_cache_miss:\n        max: 1\n")
    )
    runs.record("a", lambda _: misses(2))
    code, patch, note = bless("a")
    assert (code, patch) == (ExitCode.FAILED, "")
    assert "the value has several lines: change it by hand" in note


def test_line_ends_of_another_system_stay(runs: Runs, bless: Bless) -> None:
    text = SPEC.replace("\n", "\r\n").encode()
    runs.spec.write_bytes(text)
    runs.record("a", lambda _: misses(2))
    assert bless("a", "--write")[0] == ExitCode.OK
    assert runs.spec.read_bytes() == text.replace(b"cache_miss: 1}", b"cache_miss: 2}")


def test_a_file_in_a_folder_with_a_blank_is_patched_by_both_programs(tmp_path: Path) -> None:
    path = tmp_path / "own specs" / "one.yaml"
    path.parent.mkdir()
    path.write_text(SPEC, encoding="utf-8")
    document = Document(
        path=path, file="own specs/one.yaml", content=SPEC.encode(), data={}, marks={}, key_marks={}
    )
    text = patch(document, SPEC.replace("cache_miss: 1}", "cache_miss: 2}"))
    for command in (["git", "apply", "--check", "-"], ["patch", "-p1"]):
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, check=False, timeout=60, cwd=tmp_path
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert "cache_miss: 2}" in path.read_text(encoding="utf-8")
