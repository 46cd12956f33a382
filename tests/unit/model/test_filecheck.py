"""FileCheck's verdicts are LLVM's; whatever a person mistypes is an error; nothing is printed.

The verdicts in ``VERDICTS`` are those of LLVM 19.1.7's own FileCheck, run on the same checks and
text. LLVM 14.0.6 gives the same but for one: "a variable with a group in it", where it counts
groups wrongly.
"""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.fakes import ROOT
from torch_conformance.matching.filecheck import (
    Change,
    ChecksError,
    EmptyText,
    Kind,
    changes,
    parse,
    run,
)
from torch_conformance.matching.time_limit import PatternTooSlow

HOLDS = 0
"""Any other verdict is the line of the directive that failed."""

SEED = "CHECK: conv\nCHECK: .run(\nCHECK-SAME: frozen\nCHECK-NOT: frozen\nCHECK-NEXT: return\n"

VERDICTS: list[tuple[str, str, str, int]] = yaml.safe_load(
    (ROOT / "tests" / "data" / "filecheck.yaml").read_text("utf-8")
)
"""Name, checks, text and verdict."""


def failing_line(checks: str, text: str) -> int:
    """Return the line of the directive that failed, or ``HOLDS``."""
    outcome = run(parse(checks), text)
    assert outcome.passed == (outcome.line is None)
    return outcome.line or HOLDS


@pytest.mark.parametrize(
    ("checks", "text", "verdict"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_verdict_is_that_of_llvm(checks: str, text: str, verdict: int) -> None:
    assert failing_line(checks, text) == verdict


def test_table_has_both_verdicts_for_every_directive() -> None:
    for kind in Kind:
        uses = [(row[3], parse(row[1])) for row in VERDICTS]
        verdicts = {verdict for verdict, checks in uses if any(one.kind is kind for one in checks)}
        assert HOLDS in verdicts, kind
        assert verdicts - {HOLDS}, kind


@pytest.mark.parametrize(
    ("before", "after"),
    [("\n", "\r\n"), (" ", "  "), (" ", "\t")],
    ids=["dos line ends", "two blanks", "tabs"],
)
def test_verdict_does_not_depend_on_line_ends_and_blanks(before: str, after: str) -> None:
    for name, checks, text, verdict in VERDICTS:
        if "\r" not in text:
            assert failing_line(checks, text.replace(before, after)) == verdict, name


# What a person can mistype: the checks, then line, column, message and hint of the error.
MISTYPED: tuple[tuple[str, int, int, str, str], ...] = (
    ("", 1, 1, "no directives: nothing would be checked", "write one of CHECK:"),
    ("  \n\t\n", 1, 1, "no directives: nothing would be checked", "write one of CHECK:"),
    ("CHECK_NOT: a", 1, 1, "not a directive: 'CHECK_NOT: a'", "did you mean 'CHECK-NOT:'?"),
    ("CHECK: a\n  CHECK : b", 2, 3, "not a directive: 'CHECK : b'", "did you mean 'CHECK:'?"),
    ("check-next: a", 1, 1, "not a directive: 'check-next: a'", "did you mean 'CHECK-NEXT:'?"),
    ("Check: a", 1, 1, "not a directive: 'Check: a'", "did you mean 'CHECK:'?"),
    ("CHECK a", 1, 1, "not a directive: 'CHECK a'", "did you mean 'CHECK:'?"),
    ("CHECK-NOT a b", 1, 1, "not a directive: 'CHECK-NOT a b'", "did you mean 'CHECK-NOT:'?"),
    ("CHECKNOT: a", 1, 1, "not a directive: 'CHECKNOT: a'", "did you mean 'CHECK-NOT:'?"),
    ("CHECKS: a", 1, 1, "not a directive: 'CHECKS: a'", "did you mean 'CHECK:'?"),
    ("CHECK-LABLE: a", 1, 1, "not a directive: 'CHECK-LABLE: a'", "did you mean 'CHECK-LABEL:'?"),
    ("CHECK\uff1aa", 1, 1, "not a directive: 'CHECK\uff1aa'", "did you mean 'CHECK:'?"),
    ("- CHECK: a", 1, 1, "not a directive: '- CHECK: a'", "did you mean 'CHECK:'?"),
    ("XCHECK: a", 1, 1, "not a directive: 'XCHECK: a'", "did you mean 'CHECK:'?"),
    (
        "CHECK{literal}: a",
        1,
        1,
        "not a directive: 'CHECK{literal}: a'",
        "did you mean 'CHECK{LITERAL}:'?",
    ),
    (
        "CHECK-NEXT-NOT: a",
        1,
        1,
        "not a directive: 'CHECK-NEXT-NOT:'",
        "kinds cannot be combined: write one line for each",
    ),
    (
        "CHECK-COUNT-2-NOT: a",
        1,
        1,
        "not a directive: 'CHECK-COUNT-2-NOT:'",
        "kinds cannot be combined: write one line for each",
    ),
    ("COM: a", 1, 1, "not a directive: 'COM:'", "write comments in the YAML"),
    ("RUN: a", 1, 1, "not a directive: 'RUN:'", "write comments in the YAML"),
    ("#", 1, 1, "not a directive: '#'", "a line is blank or begins with one of CHECK:"),
    (
        "CHECK: a\nreturn b",
        2,
        1,
        "not a directive: 'return b'",
        "a line is blank or begins with one of CHECK:",
    ),
    (
        "CHECK: a\n\n# a word: about it",
        3,
        1,
        "not a directive: '# a word: about it'",
        "a line is blank or begins with one of CHECK:",
    ),
    (
        "CHECK-COUNT: a",
        1,
        1,
        "not a directive: 'CHECK-COUNT: a'",
        "did you mean 'CHECK-COUNT-<n>:'?",
    ),
    (
        "CHECK-COUNT-x: a",
        1,
        1,
        "not a directive: 'CHECK-COUNT-x: a'",
        "did you mean 'CHECK-COUNT-<n>:'?",
    ),
    (
        "CHECK-COUNT-1234567: a",
        1,
        1,
        "not a directive: 'CHECK-COUNT-1234567: a'",
        "did you mean 'CHECK-COUNT-<n>:'?",
    ),
    (
        "CHECK-COUNT-0: a",
        1,
        13,
        "a count of 0 requires nothing",
        "to forbid a text write CHECK-NOT:",
    ),
    ("CHECK-NOT: a", 1, 1, "only CHECK-NOT: any text without these lines passes", "add a CHECK:"),
    (
        "\nCHECK-NOT: a\nCHECK-NOT: b",
        2,
        1,
        "only CHECK-NOT: any text without these lines passes",
        "add a CHECK:",
    ),
    ("CHECK: {{.*}}", 1, 8, "every pattern matches the empty text", ""),
    (
        "CHECK-NOT: b\nCHECK-DAG: {{a?}}\nCHECK-SAME: {{$}}".replace("SAME", "DAG"),
        2,
        12,
        "every pattern matches the empty text",
        "",
    ),
    (
        "CHECK-NEXT: a",
        1,
        1,
        "CHECK-NEXT without a CHECK: before it",
        "begin with CHECK: or CHECK-LABEL:",
    ),
    (
        "CHECK-SAME: a",
        1,
        1,
        "CHECK-SAME without a CHECK: before it",
        "begin with CHECK: or CHECK-LABEL:",
    ),
    (
        "CHECK-EMPTY:\nCHECK: a",
        1,
        1,
        "CHECK-EMPTY without a CHECK: before it",
        "begin with CHECK: or CHECK-LABEL:",
    ),
    (
        "CHECK-NOT: a\nCHECK-DAG: b\nCHECK-NEXT: c",
        3,
        1,
        "CHECK-NEXT without a CHECK: before it",
        "begin with CHECK:",
    ),
    ("CHECK:", 1, 6, "CHECK without a pattern", "for an empty line write CHECK-EMPTY:"),
    (
        "CHECK-NOT:  \t",
        1,
        10,
        "CHECK-NOT without a pattern",
        "for an empty line write CHECK-EMPTY:",
    ),
    ("CHECK{LITERAL}:", 1, 15, "CHECK without a pattern", "for an empty line write CHECK-EMPTY:"),
    ("CHECK: a\nCHECK-EMPTY: b", 2, 13, "CHECK-EMPTY takes no pattern", "CHECK-NEXT:"),
    ("CHECK:: a", 1, 7, "two colons", "put a space before it"),
    (
        "CHECK: CHECK: b",
        1,
        8,
        "a second directive on one line",
        "a line of its own; to match this text literally, write CHECK{LITERAL}:",
    ),
    ("CHECK:\u00a0a", 1, 7, "invisible character U+00A0", "use a plain space"),
    ("CHECK: a\u200bb", 1, 9, "invisible character U+200B", "use a plain space"),
    ("\ufeffCHECK: a", 1, 1, "invisible character U+FEFF", "use a plain space"),
    (
        "CHECK: a {{b",
        1,
        10,
        "{{ without its }}",
        "close it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK-COUNT-2: {{b}",
        1,
        16,
        "{{ without its }}",
        "close it; to match this text literally, write CHECK-COUNT-2{LITERAL}:",
    ),
    (
        "CHECK: {foo}}",
        1,
        12,
        "}} without its {{",
        "open it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: foo}}",
        1,
        11,
        "}} without its {{",
        "open it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: X]]",
        1,
        9,
        "]] without its [[",
        "open it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: [[X:a",
        1,
        8,
        "[[ without its ]]",
        "close it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: [[X]",
        1,
        8,
        "[[ without its ]]",
        "close it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: [[X:a]b]]",
        1,
        8,
        "[[ without its ]]",
        "close it; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: a[[0]]",
        1,
        9,
        "not a variable: '[[0]]'",
        "to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: [[ X]]",
        1,
        8,
        "not a variable: '[[ X]]'",
        "to match this text literally, write CHECK{LITERAL}:",
    ),
    ("CHECK: [[X]]", 1, 8, "[[X]] is not defined", "define it on an earlier line: [[X:...]]"),
    (
        "CHECK: [[BUF:a]]\nCHECK: b [[BUFF]]",
        2,
        10,
        "[[BUFF]] is not defined",
        "did you mean 'BUF'?",
    ),
    ("CHECK: [[X]] [[X:a]]", 1, 8, "[[X]] is not defined", "define it on an earlier line"),
    (
        "CHECK-NOT: [[X:a]]\nCHECK: [[X]]",
        2,
        8,
        "[[X]] is not defined",
        "define it on an earlier line",
    ),
    ("CHECK: [[X:a]] [[X:b]]", 1, 16, "X is defined twice on one line", ""),
    ("CHECK: [[X:a*]]", 1, 12, "X may be empty", "let it match at least one character"),
    ("CHECK: [[X:]]", 1, 12, "empty expression", ""),
    (
        "CHECK-LABEL: [[X:a]]",
        1,
        14,
        "CHECK-LABEL takes no variable",
        "labels are matched before variables are defined",
    ),
    (
        "CHECK: [[X:a]]\nCHECK-LABEL: f [[X]]",
        2,
        14,
        "CHECK-LABEL takes no variable",
        "labels are matched before variables are defined",
    ),
    (
        "CHECK: [[#X:]]",
        1,
        8,
        "numeric substitution [[#...]] is not supported",
        "capture text: [[NAME:[0-9]+]]",
    ),
    (
        "CHECK: a [[#X + 1]]",
        1,
        10,
        "numeric substitution [[#...]] is not supported",
        "capture text",
    ),
    ("CHECK: [[@LINE]]", 1, 8, "numeric substitution [[#...]] is not supported", "capture text"),
    (
        "CHECK: f.*",
        1,
        9,
        "'.*' is plain text outside {{ }}",
        "between {{ and }}; to match this text literally, write CHECK{LITERAL}:",
    ),
    (
        "CHECK: a\nCHECK-NOT: foo\\(",
        2,
        15,
        "'\\(' is plain text outside {{ }}",
        "put it between {{ and }}",
    ),
    ("CHECK: {{}}", 1, 10, "empty expression", ""),
    ("CHECK: {{a{2}}}", 1, 11, "brace without its end", "{{(a{2})}}"),
    ("CHECK: {{\\d+}}", 1, 10, "\\d means the letter d here", "write [0-9]"),
    ("CHECK: x{{(a|b}}", 1, 11, "parenthesis without its end", ""),
    ("CHECK: [[X:(a]]", 1, 12, "parenthesis without its end", ""),
    ("CHECK: [[X:[a-]+[[:foo:]]]]", 1, 18, "unknown character class", "known: alnum"),
)


@pytest.mark.parametrize(
    ("checks", "line", "column", "message", "hint"),
    MISTYPED,
    ids=[repr(row[0]) for row in MISTYPED],
)
def test_mistyped_checks_are_an_error(
    checks: str, line: int, column: int, message: str, hint: str
) -> None:
    with pytest.raises(ChecksError) as caught:
        parse(checks)
    problem = caught.value
    assert (problem.line, problem.column) == (line, column)
    assert problem.message.startswith(message)
    assert hint in problem.hint
    assert bool(hint) == bool(problem.hint)
    assert str(problem).startswith(f"{line}:{column}: {message}")


def test_single_letter_typo_in_directive_is_an_error() -> None:
    for kind in Kind:
        word = "CHECK-COUNT-2" if kind is Kind.COUNT else kind.value
        for at in range(len(word)):
            for wrong in (
                word[:at] + word[at + 1 :],
                word[:at] + "x" + word[at + 1 :],
                word[:at] + " " + word[at:],
            ):
                if wrong.strip() != word:
                    with pytest.raises(ChecksError, match="not a directive"):
                        parse(f"CHECK: a\n{wrong}: b\n")


def test_directives_say_what_was_read() -> None:
    found = parse(
        "  # CHECK: a\n\nCHECK-NOT:   b {{c|d}}  \nCHECK-COUNT-3{LITERAL}: {{\nCHECK-EMPTY:\n"
    )
    assert [(one.kind, one.pattern, one.line, one.column, one.count) for one in found] == [
        (Kind.CHECK, "a", 1, 12, 1),
        (Kind.NOT, "b {{c|d}}", 3, 14, 1),
        (Kind.COUNT, "{{", 4, 25, 3),
        (Kind.EMPTY, "", 5, 13, 1),
    ]
    assert [str(one) for one in found] == [
        "CHECK: a",
        "CHECK-NOT: b {{c|d}}",
        "CHECK-COUNT-3{LITERAL}: {{",
        "CHECK-EMPTY:",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].line = 2  # type: ignore[misc]


def test_a_directive_can_be_taken_out() -> None:
    text = "x = conv(y)\nk.run(x, frozen_1)\nreturn (x,)\n"
    checks = parse(SEED)
    assert run(checks, text).passed
    for dropped in checks:
        rest = tuple(one for one in checks if one is not dropped)
        held = run(rest, text).passed
        # Without .run( the SAME looks beside conv; without the SAME the NOT sees the first frozen.
        assert held == (dropped.line not in (2, 3))


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n\n", "\u00a0"])
def test_an_empty_text_has_no_verdict(text: str) -> None:
    for checks in ("CHECK: a\n", "CHECK: a\nCHECK-NOT: b\n", "CHECK: {{ +}}x\nCHECK-EMPTY:\n"):
        with pytest.raises(EmptyText, match="the text is blank"):
            run(parse(checks), text)


def test_slow_pattern_is_no_verdict() -> None:
    checks = parse("CHECK: {{(a+)+b}}\n")
    start = time.monotonic()
    with pytest.raises(PatternTooSlow, match=r"0\.2 s"):
        run(checks, "a" * 40, seconds=0.2)
    assert time.monotonic() - start < 60


def test_slow_search_for_a_hint_keeps_the_verdict() -> None:
    text = "a" * 40 + "\nx\nb\n"
    start = time.monotonic()
    outcome = run(parse("CHECK: x\nCHECK: {{(a+)+c}}\n"), text)
    assert (outcome.passed, outcome.line, outcome.reason, outcome.possible) == (
        False,
        2,
        "no match",
        "",
    )
    assert time.monotonic() - start < 60


def test_time_limit_in_other_thread_is_an_error() -> None:
    caught: list[BaseException] = []

    def judge() -> None:
        try:
            run(parse("CHECK: a\n"), "a")
        except RuntimeError as problem:
            caught.append(problem)

    thread = threading.Thread(target=judge)
    thread.start()
    thread.join(timeout=60)
    assert [str(problem) for problem in caught] == [
        "a time limit can be set only in the main thread"
    ]


# Explanations: the checks, the text, then what the outcome says.


def test_no_match_shows_where_the_search_began() -> None:
    outcome = run(
        parse("CHECK: .run(\nCHECK: return\n"),
        "import k\n\ndef call():\n    k.run(x)\n    retrun x\n# end\n",
    )
    assert (outcome.passed, outcome.line, outcome.directive, outcome.reason) == (
        False,
        2,
        "CHECK: return",
        "no match",
    )
    assert outcome.excerpt.split("\n") == [
        "     2 |",
        "     3 | def call():",
        ">    4 |     k.run(x)",
        "       |           ^ searched from here",
        "     5 |     retrun x",
        "     6 | # end",
    ]
    assert outcome.possible == "line 5: retrun x"


def test_forbidden_match_is_underlined_in_the_text_as_it_was() -> None:
    outcome = run(parse("CHECK: a\nCHECK-NOT: b c{{d+}}\n"), "\ta\n  x\tb \t cdd e\n")
    assert (outcome.line, outcome.reason, outcome.possible) == (2, "matched a forbidden line", "")
    assert outcome.excerpt.split("\n") == [
        "     1 |     a",
        ">    2 |   x b    cdd e",
        "       |     ^^^^^^^^ matched here",
    ]


@pytest.mark.parametrize(
    ("checks", "text", "reason"),
    [
        ("CHECK: a\nCHECK-NEXT: b\n", "a b\n", "matched on the same line as the previous match"),
        (
            "CHECK: a\nCHECK-NEXT: b\n",
            "a\n\nb\n",
            "matched, but not on the line after the previous match",
        ),
        (
            "CHECK: a\nCHECK-SAME: b\n",
            "a\nb\n",
            "matched, but not on the same line as the previous match",
        ),
        (
            "CHECK: a\nCHECK-EMPTY:\n",
            "a\nb\n\nc\n",
            "matched, but not on the line after the previous match",
        ),
        ("CHECK: x\nCHECK-COUNT-3: a\n", "x a a\n", "matched 2 of 3 times"),
        ("CHECK: x\nCHECK-COUNT-3: a\n", "x\n", "no match"),
        ("CHECK: x\nCHECK-DAG: a\n", "x\n", "no match"),
        ("CHECK: x\nCHECK-LABEL: a\n", "x\n", "no match"),
    ],
)
def test_reason(checks: str, text: str, reason: str) -> None:
    outcome = run(parse(checks), text)
    assert (outcome.passed, outcome.line, outcome.reason) == (False, 2, reason)
    assert outcome.excerpt.count("\n       | ") == 1


@pytest.mark.parametrize(
    ("checks", "text", "possible"),
    [
        ("CHECK: b\nCHECK: a\n", "a\nb\n", "line 1: a (before the lines searched)"),
        (
            "CHECK-LABEL: f\nCHECK: x\nCHECK-LABEL: g\n",
            "f\ng\n  x\n",
            "line 3: x (after the lines searched)",
        ),
        (
            "CHECK: tl.load(in_ptr0 + x0)\n",
            "def k():\n    tmp = tl.load(in_ptr0 + (x0))\n",
            "line 2: tmp = tl.load(in_ptr0 + (x0))",
        ),
        (
            "CHECK: [[B:buf[0-9]+]] =\nCHECK: del [[B]] # done\n",
            "buf1 = 0\nx\ndel buf1  # dome\n",
            "line 3: del buf1  # dome",
        ),
        ("CHECK: entirely different\n", "a\nb\n", ""),
        ("CHECK: {{[0-9]+}}\n", "a\nb\n", ""),
        ("CHECK: a\nCHECK: b\n", "a", ""),
    ],
)
def test_possible_match(checks: str, text: str, possible: str) -> None:
    assert run(parse(checks), text).possible == possible


def test_excerpt_of_a_long_line_shows_the_place() -> None:
    outcome = run(
        parse("CHECK: start\nCHECK-NOT: needle\n"), "start" + "." * 5000 + "needle" + "." * 5000
    )
    line, marks = outcome.excerpt.split("\n")
    assert len(line) < 160
    assert line[marks.index("^") : marks.rindex("^") + 1] == "needle"


def test_excerpt_behind_the_last_newline() -> None:
    outcome = run(parse("CHECK: a{{[[:space:]]}}\nCHECK: b\n"), "a\n")
    assert outcome.excerpt == "     1 | a\n>    2 |\n       | ^ searched from here"


def test_passed_outcome_has_no_details() -> None:
    outcome = run(parse("CHECK: a\n"), "a")
    assert dataclasses.astuple(outcome) == (True, None, "", "", "", "")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for _, checks, text, _ in VERDICTS:
        run(parse(checks), text)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_written_and_the_environment_does_not_matter(tmp_path: Path) -> None:
    code = "from torch_conformance.matching.filecheck import parse, run\n"
    code += "assert run(parse('CHECK-DAG: a\\nCHECK-DAG: b\\nCHECK-NOT: c\\n'), 'b a').passed\n"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
        "FILECHECK_OPTS": "-v",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=True,
        timeout=240,
    )
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == (b"", b"", [])


def test_the_captured_value_is_text_even_when_it_looks_like_a_pattern() -> None:
    checks = parse("CHECK: name [[X:[^ ]+]]\nCHECK-NOT: <[[X]]>\nCHECK: end\n")
    assert run(checks, "name {{.*}}\n<abc>\nend\n").passed
    assert not run(checks, "name {{.*}}\n<{{.*}}>\nend\n").passed


def fastest(judge: Callable[[], bool]) -> float:
    """Return the least CPU time of five, in seconds."""
    times = []
    for _ in range(5):
        start = time.process_time()
        assert judge()
        times.append(time.process_time() - start)
    return min(times)


def test_time_of_a_large_text() -> None:
    line = (
        "        tmp{} = tl.load(in_ptr{} + (x0 + 64*x1), xmask, "
        "eviction_policy='evict_last').to(tl.float32)\n"
    )
    body = "".join(line.format(at, at) for at in range(2000))
    text = body + "    triton_poi_fused_0.run(arg0, _frozen_param0)\n    return (buf0,)\n"
    checks = parse(
        "CHECK: tmp0 =\nCHECK-SAME: tl.load\nCHECK-NEXT: tmp1 = "
        "[[LOAD:tl[.]load]]\nCHECK-COUNT-20: [[LOAD]](in_ptr{{[0-9]+}}\n"
        "CHECK-DAG: tmp9{{[0-9]|x}}\nCHECK-DAG: tmp5{{[0-9]}} =\nCHECK-NOT: "
        "extern_kernels.{{(mm|addmm)}}(\nCHECK: .run(\n"
        "CHECK-SAME: _frozen_param\nCHECK-NOT: _frozen_param\nCHECK-NEXT: return\n"
    )
    assert len(text) > 200_000
    assert fastest(lambda: run(checks, text).passed) < 0.05
    assert fastest(lambda: not run(checks, text.replace("return", "retrun")).passed) < 0.05


# -- texts that the checks must refuse: for each directive one, or the reason why there is none ----

CODE = """def f(x):
    y = convolution_relu(x, _frozen_param0, _frozen_param1)
    y = foo(y)

    y = foo(y)
    return y
"""


def refusals(checks: str, text: str = CODE) -> list[str]:
    """Return what the checks say of each changed text: nothing where they still hold, else the
    directive that fails.
    """
    parsed = parse(checks)
    assert run(parsed, text).passed
    found = []
    for change in changes(parsed, text):
        assert change.directive in parsed
        found.append(change.why_not if change.text is None else run(parsed, change.text).directive)
    return found


@pytest.mark.parametrize(
    "directive",
    [
        "CHECK: convolution",
        "CHECK: convolution{{[a-z_]*}}({{[a-z]+}}, _frozen_param{{.*}}_frozen_param",
        "CHECK-LABEL: def f",
        "CHECK-DAG: foo",
        "CHECK-COUNT-2: foo",
        "CHECK: foo",
        "CHECK: return [[NAME:[a-z]+]]",
        "CHECK{LITERAL}: (x",
    ],
)
def test_what_a_directive_matched_is_removed(directive: str) -> None:
    assert refusals(directive) == [directive]


def test_one_of_several_matches_is_not_enough() -> None:
    """A check asks for one match: with another in its stead it holds, and rightly."""
    (change,) = changes(parse("CHECK: foo"), CODE)
    assert change.kind is Change.REMOVED
    assert "foo" not in (change.text or "foo")


def test_a_directive_that_matches_the_empty_text_survives() -> None:
    assert refusals("CHECK: foo\nCHECK-SAME: {{.*}}") == ["CHECK: foo", ""]


@pytest.mark.parametrize(
    "forbidden",
    [
        "CHECK-NOT: sqrt",
        "CHECK-NOT: tanh(",
        "CHECK-NOT: {{mm|linear}}{{[a-z_.]*}}({{.*}}_frozen",
        "CHECK-NOT: {{^}}import",
        "CHECK-NOT: {{([[:digit:]]{3})}} times",
        "CHECK-NOT: {{[^a-z]x[^[:space:]]+}}!",
        "CHECK-NOT: {{(ab)+c?}}d{{$}}",
    ],
)
@pytest.mark.parametrize(
    "around",
    ["{}\nCHECK: convolution", "CHECK: convolution\n{}\nCHECK: return", "CHECK: return\n{}"],
)
def test_a_forbidden_line_is_put_in(forbidden: str, around: str) -> None:
    assert forbidden in refusals(around.format(forbidden))


def test_a_forbidden_text_is_put_where_the_next_line_stays_the_next() -> None:
    checks = "CHECK: convolution{{.*}}_frozen_param\nCHECK-NOT: bar\nCHECK-NEXT: foo"
    assert refusals(checks)[1] == "CHECK-NOT: bar"


def test_what_the_next_line_would_take_first_survives() -> None:
    """Before the first ``foo`` there is no ``foo``, whatever the text: such a CHECK-NOT says
    nothing.
    """
    assert refusals("CHECK: convolution\nCHECK-NOT: foo\nCHECK: foo") == [
        "CHECK: convolution",
        "",
        "CHECK: foo",
    ]
