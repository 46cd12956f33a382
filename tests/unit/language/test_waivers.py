"""Known failures: what the corpus cannot hold of a waiver (days, samples, slow patterns, numbers),
and what its file may say.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import (
    COUNTED,
    HERE,
    ID,
    case,
    expected,
    observation,
    place,
    seen,
    shipped_suite,
    step,
    verdict_of,
)
from torch_conformance.cli.parser import main
from torch_conformance.judge import waiving as module
from torch_conformance.judge.waiving import WAIVABLE, Waivers, apply
from torch_conformance.language.backends import Backends, load_backends
from torch_conformance.language.waivers import load_waivers
from torch_conformance.model.case import Step
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.model.expectation import Status, Verdict, WrongValue
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult, WaiverEffect
from torch_conformance.model.waivers import Signature, WaiverFiles
from torch_conformance.model.waivers import Waiver as KnownFailure

TODAY = date(2026, 12, 1)
PASSED = verdict_of(case(step(COUNTED)), observation(seen()))
FAILED = verdict_of(
    case(step(expected("counter", {"inductor.fxgraph_cache_miss": 2}, line=11))),
    observation(seen()),
)
MISS = ("counter", "cache_miss.* observed 1")


def waiver(*signatures: tuple[str, str], line: int = 2, **changes: Any) -> KnownFailure:
    made = KnownFailure(
        cases="area/*",
        when=None,
        failures=tuple(Signature(*signature) for signature in signatures),
        reason="The cache counts a miss too few",
        issue="https://example.org/issues/7",
        until=date(2027, 3, 1),
        position=replace(place(line, 5), file="waivers.yaml"),
    )
    return replace(made, **changes)


def waived(
    judged: CaseResult, *entries: KnownFailure, today: date = TODAY, steps: Sequence[Step] = ()
) -> CaseResult:
    files = WaiverFiles(waivers=entries, documents=(), user_files=frozenset({"waivers.yaml"}))
    return apply(judged, case(*steps), HERE, Waivers(files, today))


@pytest.mark.parametrize("flaky", [False, True])
@pytest.mark.parametrize("judged", [PASSED, FAILED])
@pytest.mark.parametrize(("today", "void"), [(date(2027, 3, 1), False), (date(2027, 3, 2), True)])
def test_a_waiver_is_void_after_its_last_day(
    today: date, void: bool, judged: CaseResult, flaky: bool
) -> None:
    effect, outcome = (
        (WaiverEffect.PASSED, Outcome.XPASS)
        if judged is PASSED
        else (WaiverEffect.MATCHED, Outcome.XFAIL)
    )
    outcome = Outcome.PASS if judged is PASSED and flaky else outcome
    found = waived(judged, waiver(MISS, flaky=flaky), today=today)
    assert (found.flaky_waiver is not None) is (flaky and not void)
    assert found.outcome is (judged.outcome if void else outcome)
    assert [note.effect for note in found.waivers] == [WaiverEffect.EXPIRED if void else effect]
    assert (found.verdicts, str(found.waivers[0].position)) == (judged.verdicts, "waivers.yaml:2:5")


def test_a_pass_of_some_samples_alone_does_not_show_that_the_failure_is_gone() -> None:
    some = step(kind="samples", op="add", dtype="float32", samples=4)
    found = waived(PASSED, waiver(MISS), waiver(MISS, line=9, until=date(2026, 1, 1)), steps=[some])
    assert (found.outcome, found.reason) == (Outcome.PASS, PASSED.reason)
    assert [note.effect for note in found.waivers] == [
        WaiverEffect.PART_PASSED,
        WaiverEffect.EXPIRED,
    ]
    assert waived(FAILED, waiver(MISS), steps=[some]).outcome is Outcome.XFAIL


@pytest.mark.parametrize(
    "outcome",
    [
        outcome
        for outcome in Outcome
        if outcome not in (Outcome.PASS, Outcome.OFFLINE_PASS, *WAIVABLE)
    ],
)
def test_what_claims_nothing_is_never_waived(outcome: Outcome) -> None:
    judged = replace(FAILED, outcome=outcome)
    assert waived(judged, waiver(("error", "cache_miss"), MISS)) is judged


def test_a_pattern_without_an_answer_waives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.search
    monkeypatch.setattr(module, "search", lambda pattern, text: real(pattern, text, seconds=0.2))
    judged = replace(
        FAILED,
        verdicts=(
            Verdict(kind="counter", status=Status.FAILED, position=place(11), observed="a" * 60),
        ),
    )
    found = waived(judged, waiver(("counter", "(a+)+$b")))
    assert (found.outcome, [note.effect for note in found.waivers]) == (
        Outcome.FAIL,
        [WaiverEffect.TOO_SLOW],
    )


def test_no_failure_at_all_is_no_match() -> None:
    """A failure whose verdicts cannot be read is not taken for a known one."""
    assert waived(replace(FAILED, verdicts=()), waiver(MISS)).outcome is Outcome.FAIL


# -- numbers ---------------------------------------------------------------------------------------

SINE = {"error": 1.41, "share": 1.0, "size": 1.15, "likeness": 0.04}


@pytest.mark.parametrize(
    ("seen", "is_covered"),
    [
        ({}, True),
        ({"error": 5.6}, True),
        ({"error": 5.7}, False),  # exp for cos
        ({"error": 0.35}, False),
        ({"error": 1.0, "size": 0.0, "likeness": 0.0}, False),  # zeros
        ({"error": 2.0, "size": 1.0, "likeness": -1.0}, False),  # negated
        ({"error": 2.0, "size": 1.9, "likeness": 0.5}, True),
        ({"share": 0.02}, False),  # one element
        ({"nonfinite": 0.02}, False),
        (None, False),  # another shape
    ],
)
def test_a_signature_of_numbers_covers_the_same_defect_alone(
    seen: dict[str, float] | None, is_covered: bool
) -> None:
    numbers = {} if seen is None else {"nonfinite": 0.0, **SINE, **seen}
    wrong = (WrongValue(message="expected output within atol=0, observed 1", numbers=numbers),)
    verdict = Verdict(kind="close", status=Status.FAILED, position=place(11), wrong=wrong)
    entry = waiver(line=2, failures=(Signature("close", "output within", (), SINE),))
    assert waived(replace(FAILED, verdicts=(verdict,)), entry).outcome is (
        Outcome.XFAIL if is_covered else Outcome.FAIL
    )
    second = WrongValue(message="expected output[1] of shape [4], observed [2]")
    both = replace(FAILED, verdicts=(replace(verdict, wrong=(*wrong, second)),))
    assert waived(both, entry).outcome is Outcome.FAIL


# -- the file --------------------------------------------------------------------------------------

ENTRY = """\
waivers:
  - cases: area/*
    when: {torch: "<2.14", device: [cpu, cuda]}
    failure: {type: counter, match: cache_miss}
    reason: The cache counts a miss too few
    issue: https://example.org/issues/7
    until: 2027-03-01
  - cases: "area/fake[backend=cpu]"
    failure: [{type: raised, match: cannot lower}, {type: fell-back, match: 0 graphs}]
    reason: Lowering gives up
    issue: https://example.org/issues/8
    until: "2028-02-29"
    flaky: true
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(here: Path) -> Write:

    def file(text: str) -> Path:
        path = Path("waivers.yaml")
        path.write_text(text, "utf-8")
        return path

    return file


def codes(path: Path) -> list[str]:
    """Return line, column and code of each problem of a file of waivers."""
    try:
        load_waivers([path], backends())
    except InvalidSpecs as error:
        return [
            f"{problem.position.line}:{problem.position.column} {problem.code}"
            for problem in error.diagnostics
        ]
    return []


@functools.cache
def backends() -> Backends:
    return load_backends()


def test_a_file_is_read(write: Write) -> None:
    found = load_waivers([write(ENTRY)], backends())
    ours = [entry for entry in found.waivers if entry.position.file == "waivers.yaml"]
    assert ours == [
        waiver(("counter", "cache_miss"), when={"torch": "<2.14", "device": ["cpu", "cuda"]}),
        waiver(
            ("raised", "cannot lower"),
            ("fell-back", "0 graphs"),
            line=8,
            cases=ID,
            reason="Lowering gives up",
            issue="https://example.org/issues/8",
            until=date(2028, 2, 29),
            flaky=True,
        ),
    ]
    assert found.user_files == {"waivers.yaml"}
    digests = Waivers(found, TODAY).digests
    assert set(digests) == {document.file for document in found.documents}
    assert len(digests["waivers.yaml"]) == 64


UNRELATED = (
    r". .+ (?s). \\S \\w+ [a-z] [^q] ^.{2,400}$ (?=.) (?i)[a-z0-9] "
    r".|cache_miss \\D (?!cache).".split()
)
UNRELATED += [
    "(?s).{300}",
    "[\\\\s\\\\S]{20}",
    "",
    ".*",
    "|cache_miss",
    "[\\\\s\\\\S]*",
    "(?=)",
    "$",
    "^",
    "(cache)?",
]
FIXED = ["e", "expected", "observed", ": ", "counter|observed", "^counter: expected .*, observed"]
SPECIFIC = [
    "cache_miss 0, observed 2",
    "1",
    "observed 0",
    "0 graphs",
    "SIG(SEGV|ABRT)",
    "hit .* observed [1-9]",
    "(?i)cannot lower",
]


@pytest.mark.parametrize("pattern", [*UNRELATED, *FIXED, *SPECIFIC])
def test_a_pattern_names_something_of_its_defect(pattern: str, write: Write) -> None:
    problems = codes(write(ENTRY.replace("match: cache_miss", f'match: "{pattern}"')))
    if pattern in SPECIFIC:
        assert problems == []
    elif pattern:
        assert problems == [
            f"4:37 {'waives-any-of-a-type' if pattern in FIXED else 'waives-any-failure'}"
        ]
    else:
        assert problems == ["4:37 empty"]


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        ("type: close, match: output", "4:35 waives-any-number"),
        ("type: close, match: loss", "4:35 waives-any-number"),
        ("type: close, match: 'gradients.*times the bound'", "4:35 waives-any-number"),
        ("type: side-effects, match: argument", "4:42 waives-any-number"),
        ("type: close, match: output, error: 0.37", ""),
        ("type: close, match: output, error: {max: 1}, answer: {size: 0}", ""),
        ("type: close, match: LoweringException", ""),
        ("type: close, match: 'observed .32.'", ""),
        ("type: close, match: 'at .0.: 6.0, eager 4.0'", ""),
        ("type: counter, match: cache_miss, error: 1", "4:49 failure-without-numbers"),
        ("type: close, match: output, answer: {size: 0}", "4:43 incomplete"),
    ],
)
def test_a_signature_of_numbers_says_how_great_the_error_is(
    failure: str, problem: str, write: Write
) -> None:
    assert codes(write(ENTRY.replace("type: counter, match: cache_miss", failure))) == (
        [problem] if problem else []
    )


@pytest.mark.parametrize(
    ("change", "codes_expected"),
    [
        ((ENTRY, "# none\n"), ["1:1 empty-file"]),
        ((ENTRY, "waivers:\n"), ["1:9 wrong-type"]),
        ((ENTRY, "- cases: x\n"), ["1:1 wrong-type"]),
        ((ENTRY, "waiver: []\n"), ["1:1 unknown-key"]),
        (("type: counter", "type: error"), ["4:21 waived-error"]),
        (("type: counter", "type: xpass"), ["4:21 unknown-type-of-failure"]),
        (("2027-03-01", "2027-02-29"), ["7:12 not-a-date"]),
        (("cuda]", "gpu]"), ["3:42 unknown-device"]),
        (("until: 2027", "untill: 2027"), ["7:5 unknown-key"]),
        *(
            (("https://example.org/issues/8", issue), ["11:12 wrong-text"])
            for issue in ("later", "next week 12", "file:///x", "ftp://host/1")
        ),
        *(
            (("https://example.org/issues/8", issue), ["11:12 wrong-text"])
            for issue in ("see the tracker", '"#"')
        ),
    ],
)
def test_what_is_wrong_with_a_file_has_a_position(
    write: Write, change: tuple[str, str], codes_expected: list[str]
) -> None:
    assert codes(write(ENTRY.replace(*change))) == codes_expected


def test_every_shipped_waiver_is_for_some_case() -> None:
    suite = shipped_suite()
    found = load_waivers([], suite.backends)
    ids = [case.id for case in suite.cases]
    dead = [
        str(entry.position)
        for entry in found.waivers
        if not any(module._glob(entry.cases).fullmatch(name) for name in ids)
    ]
    assert not dead, f"these are for no case: {dead}"


# -- files of another form -------------------------------------------------------------------------

LIST_ABOVE = "".join(
    f"{line[2:]}\n" for line in ENTRY.splitlines() if not line.startswith("waivers")
)


@pytest.mark.parametrize(
    "text",
    [
        "area/spec[backend=cpu]: {reason: it fails, token: hunter2}\n",
        "Known bugs:\n- {function: gemm, known_bug_platforms: gfx906}\n",
        "- area/spec[backend=cpu]\n- area/other\n",
        "waivers: [area/spec, area/other]\n",
        "waivers:\n- {function: gemm, known_bug_platforms: gfx906}\n",
        "machine example.org login me password hunter2\n",
        LIST_ABOVE,
    ],
)
def test_a_file_of_another_form_is_refused_and_not_quoted(write: Write, text: str) -> None:
    with pytest.raises(InvalidSpecs) as raised:
        load_waivers([write(text)], backends())
    assert raised.value.diagnostics[0].code in ("other-file", "wrong-type", "missing-key")
    assert not any("hunter2" in str(problem) for problem in raised.value.diagnostics)


# -- what validate says of them --------------------------------------------------------------------


def entry(cases: str, until: str = "2099-01-01") -> str:
    failure = "failure: {type: counter, match: miss}"
    return (
        f'  - {{cases: "{cases}", {failure}, reason: A reason long enough, issue: JIRA-1, until: '
        f"{until}}}\n"
    )


def test_validate_warns_of_void_waivers_and_of_those_for_no_case(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("waivers:\n" + entry("good*") + entry("god*") + entry("good*", "2020-02-29"))
    Path("good.yaml").write_text(GOOD)
    assert main(["validate", "good.yaml", "--waivers", "waivers.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "waivers.yaml:3:5: warning: the waiver of 'god*' is for none of the 1 cases that were "
        "read (only * and ? are special)",
        "waivers.yaml:4:5: warning: the waiver of 'good*' ended on 2020-02-29 and is void: "
        "JIRA-1 (remove it, or set a later date)",
        "1 spec, 1 case, no problem, 2 warnings",
    ]
    assert main(["validate", "--json", "good.yaml", "--waivers", "waivers.yaml"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["valid"], [one["severity"] for one in told["problems"]]) == (
        True,
        ["warning", "warning"],
    )


@pytest.mark.parametrize(
    "before", ["", "# known failures\n", "waivers:\n", "waivers:\n  - cases: b*\n    reason: x\n"]
)
def test_a_place_that_cannot_be_parsed_is_told_and_no_wrong_form(write: Write, before: str) -> None:
    lines = codes(write(before + "  - cases: a*\n    reason: the second: breaks\n"))
    assert [line for line in lines if "yaml" in line] == [
        f"{before.count(chr(10)) + 2}:23 yaml-colon"
    ]
    assert not [line for line in lines if "other-file" in line]
