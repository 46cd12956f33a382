"""Whether each expectation could have failed.

Every kind's mutants on facts, what survives, and what a spec may say about it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import (
    AT,
    HERE,
    case,
    close_facts,
    close_leaf,
    expected,
    observation,
    reading,
    seen,
    step,
    verdict_of,
)
from tests.recorded import recorded
from torch_conformance.judge.evidence import carried_out, read_facts
from torch_conformance.judge.mutants import Fate, Trial, try_case, with_control
from torch_conformance.model.case import Case, Control
from torch_conformance.model.case_facts import Raised
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.run.auditing import Audit, judge_control
from torch_conformance.vocabulary.expectations import EXPECTATIONS

RAISED = Raised(
    type="builtins.ValueError",
    ancestors=(
        "builtins.ValueError",
        "builtins.Exception",
        "builtins.BaseException",
        "builtins.object",
    ),
    message="a bad shape",
    traceback="",
    phase="trace",
)
FAR = {"excess": 2.0, "nan_mismatches": 0, "inf_mismatches": 0}
NEAR = {"excess": 0.0, "nan_mismatches": 0, "inf_mismatches": 0}


def mutants(kind: str, body: Any, **facts: Any) -> dict[str, str]:
    """Return the fate of each mutant of one expectation that holds, by its name, leaf and place."""
    check = EXPECTATIONS[kind].parse(body)
    known = reading(**facts)
    assert {judgement.status for judgement in check.judge(known)} <= {
        Status.HELD,
        Status.NOT_APPLICABLE,
    }
    found = {}
    for mutant in check.mutants(known):
        name = " ".join(filter(None, [mutant.leaf, mutant.name, mutant.where]))
        assert name not in found
        found[name] = mutant.why_not or _fate(check, mutant)
    return found


def _fate(check: Any, mutant: Any) -> str:
    statuses = [one.status for one in check.judge(mutant.facts) if one.leaf == mutant.leaf]
    return "survived" if statuses == [Status.HELD] else "killed"


# -- each kind: test_expectations has their mutants ------------------------------------------------


def test_raises_of_what_every_exception_is_survives_another_type() -> None:
    assert mutants("raises", {"type": "Exception"}, raised=RAISED) == {
        "none raised": "killed",
        "another type": "survived",
    }


def test_raises_with_a_pattern_that_any_text_satisfies_survives_another_text() -> None:
    assert (
        mutants("raises", {"type": "ValueError", "match": "[a-z]+"}, raised=RAISED)["another text"]
        == "survived"
    )


# -- close -----------------------------------------------------------------------------------------


def test_close_is_judged_with_each_stand_in_at_each_leaf() -> None:
    first = close_leaf(
        path="[0]", stand_ins={"zeros": FAR, "negated": NEAR, "NaN": {**NEAR, "nan_mismatches": 1}}
    )
    second = close_leaf(path="[1]", stand_ins={"zeros": {"why_not": "it equals the reference"}})
    number = {
        "path": "[2]",
        "type": "int",
        "shape": None,
        "dtype": None,
        "device": None,
        "equal": True,
        "value": "3",
    }
    number |= {
        f"reference_{key}": number[key] for key in ("type", "shape", "dtype", "device", "value")
    }
    found = mutants("close", {"to": "eager"}, measured=close_facts(first, second, number))
    assert found["zeros output[0]"] == "killed"
    assert found["negated output[0]"] == "survived"
    assert found["NaN output[0]"] == "killed"
    assert found["rows swapped output[0]"] == "it was not measured in the run"
    assert found["zeros output[1]"] == "it equals the reference"
    assert found["another value output[2]"] == "killed"


# -- whole cases -----------------------------------------------------------------------------------


def tried(
    of: Case, *steps: Mapping[str, Any], code: Mapping[tuple[int, int], str] | None = None
) -> list[Trial]:
    facts = read_facts(observation(*steps), lambda index, piece, _: (code or {})[index, piece])
    return try_case(of, HERE, carried_out(of, facts.steps))


def fates(trials: list[Trial]) -> dict[str, Fate]:
    return {f"{trial.kind} {trial.leaf} {trial.mutant}": trial.fate for trial in trials}


COUNTER = expected("counter", {"inductor.fxgraph_cache_miss": 1}, line=12)
CLOSE = expected("close", {"to": "eager"}, line=13)


def compared(**stand_ins: Any) -> dict[str, Any]:
    return seen(measured={"0": close_facts(close_leaf(stand_ins=stand_ins))})


def test_an_expectation_is_tried_where_it_held_and_nowhere_else() -> None:
    failing = expected("counter", {"inductor.fxgraph_cache_miss": 5})
    absent = expected("runs", {"when": {"device": "cuda"}})
    assert tried(case(step(failing, absent)), seen()) == []
    found = tried(case(step(failing, COUNTER)), seen())
    assert {trial.position.line for trial in found} == {12}
    assert fates(found) == {
        "counter inductor.fxgraph_cache_miss one more": Fate.KILLED,
        "counter inductor.fxgraph_cache_miss one less": Fate.KILLED,
    }


def test_facts_that_make_no_sense_to_a_mutant_are_not_applicable() -> None:
    of = case(step(CLOSE, COUNTER))
    odd = seen(measured={"0": close_facts(close_leaf(stand_ins={"zeros": FAR, "negated": 7}))})
    assert verdict_of(of, observation(odd)).outcome is Outcome.PASS
    assert [(trial.kind, trial.fate) for trial in tried(of, odd)] == [
        ("close", Fate.KILLED),
        ("close", Fate.NOT_APPLICABLE),
        ("counter", Fate.KILLED),
        ("counter", Fate.KILLED),
    ]


def test_what_rounding_explains_need_not_fail() -> None:
    small, great = ({**NEAR, "excess": size} for size in (1e-7, 1.0))
    leaves = [
        close_leaf(path=f"[{index}]", stand_ins={"zeros": size})
        for index, size in enumerate((small, great))
    ]
    found = mutants("close", {"to": "eager"}, measured=close_facts(*leaves))
    assert found["zeros output[0]"] == "it is only rounding compared with the other values"


def test_a_filecheck_is_tried_line_by_line() -> None:
    checks = expected("filecheck", "CHECK-NOT: sqrt\nCHECK: convolution\nCHECK: {{.*}}\n", line=20)
    found = tried(case(step(checks)), seen(code=1), code={(0, 0): "x = convolution(y)\nreturn x\n"})
    assert [(trial.mutant, trial.where, trial.fate) for trial in found] == [
        ("a matching line put in", "line 1: CHECK-NOT: sqrt", Fate.KILLED),
        ("its match removed", "line 2: CHECK: convolution", Fate.KILLED),
        ("its match removed", "line 3: CHECK: {{.*}}", Fate.SURVIVED),
        ("all code commented out", "", Fate.KILLED),
    ]


def test_a_forbidden_word_that_nothing_emits_could_not_have_failed() -> None:
    checks = expected(
        "filecheck",
        "CHECK: convolution\nCHECK-NOT: at::sqrtt(\nCHECK-NOT: {{re}}lu_gluu\n",
        line=20,
    )
    assert checks.check.measurement() == {"words": ["sqrtt", "lu_gluu"]}
    facts = seen(code=1, measured={"0": {"unknown": ["sqrtt", "lu_gluu"]}})
    found = tried(
        case(step(checks)), facts, code={(0, 0): "lu_gluu = 1\nx = convolution(y)\nreturn x\n"}
    )
    assert [trial.where[:27] for trial in found if trial.fate is Fate.SURVIVED] == [
        "line 2: CHECK-NOT: at::sqrt"
    ]
    assert expected(
        "filecheck", {"stage": "wrapper", "checks": "CHECK: a_b\nCHECK-NOT: sqrt"}
    ).check.measurement() == {"words": ["sqrt"]}
    assert (
        expected(
            "filecheck", {"stage": "amdgcn", "checks": "CHECK: a_b\nCHECK-NOT: sqrt"}
        ).check.measurement()
        is None
    )


def test_what_looks_at_comments_needs_a_reason() -> None:
    """A directive for the whole text holds for text that computes nothing."""
    code = {(0, 0): "import torch\n# Original ATen: [aten.mm]\nx = convolution(y)\n"}
    fates = {}
    for text in ("whole", "code"):
        checks = expected("filecheck", {"checks": "CHECK: convolution", "text": text})
        fates[text] = [
            trial.fate
            for trial in tried(case(step(checks)), seen(code=1), code=code)
            if "comment" in trial.mutant
        ]
    assert fates == {"whole": [Fate.SURVIVED], "code": [Fate.KILLED]}


@pytest.mark.parametrize("forbidden", ["# Original", "import math", "{{^}}from ctypes"])
def test_a_forbidden_comment_can_never_fail(forbidden: str) -> None:
    checks = expected("filecheck", f"CHECK: convolution\nCHECK-NOT: {forbidden}")
    found = tried(
        case(step(checks)),
        seen(code=1),
        code={(0, 0): "import torch\nx = convolution(y)\nreturn x\n"},
    )
    assert [trial.fate for trial in found if trial.mutant == "a matching line put in"] == [
        Fate.SURVIVED
    ]


# -- reasons in the spec ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stand_ins", "survivors", "excused", "stale"),
    [
        ([{"zeros": FAR, "negated": NEAR}], 0, ["negated"], 0),
        ([{"zeros": FAR}], 0, [], 1),
        # a reason that one case of a spec needs is none too many
        ([{"zeros": FAR}, {"zeros": NEAR}], 0, ["zeros"], 0),
    ],
)
def test_a_written_reason(
    stand_ins: list[dict[str, Any]], survivors: int, excused: list[str], stale: int
) -> None:
    of = case(step(replace(CLOSE, weak="it is meant so")))
    found = Audit.of(tried(of, compared(**those)) for those in stand_ins)
    assert (len(found.survivors), [trial.mutant for trial in found.excused], len(found.stale)) == (
        survivors,
        excused,
        stale,
    )


# -- controls --------------------------------------------------------------------------------------


def controlled(*fails: str, **patch: Any) -> Case:
    control = Control(patch=patch or {"config": {"freezing": False}}, fails=fails, position=AT)
    return case(step(COUNTER, CLOSE), control=control, body={"config": {"freezing": True, "x": 1}})


def result(*verdicts: tuple[str, Status], outcome: Outcome = Outcome.FAIL) -> CaseResult:
    made = tuple(Verdict(kind=kind, status=status, position=AT) for kind, status in verdicts)
    return recorded("one", outcome, reason="why", verdicts=made)


def test_a_control_patches_its_sections_and_leaves_the_rest() -> None:
    patched = with_control(controlled())
    assert patched.body.settings.config == {"freezing": False, "x": 1}
    assert patched.control is None


@pytest.mark.parametrize(
    ("fails", "verdicts", "as_it_must"),
    [
        ((), [("counter", Status.FAILED)], True),
        ((), [("counter", Status.HELD)], False),
        ((), [("counter", Status.ERROR)], False),
        ((), [("proof", Status.FAILED)], False),
        ((), [("raised", Status.FAILED)], False),
        (("counter",), [("counter", Status.FAILED), ("close", Status.HELD)], True),
        (("counter", "close"), [("counter", Status.FAILED), ("close", Status.HELD)], False),
        (("close",), [("counter", Status.FAILED)], False),
    ],
)
def test_a_control_fails_as_it_must(
    fails: tuple[str, ...], verdicts: list[tuple[str, Status]], as_it_must: bool
) -> None:
    found = judge_control(controlled(*fails), result(*verdicts))
    assert found.failed_as_it_must is as_it_must
    assert found.patch == "config freezing = False"
    assert ("why" in found.words) is not as_it_must
