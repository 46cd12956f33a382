"""Texts that FileCheck must refuse after they were changed: for each directive one, or the reason why there is none."""

import pytest

from runner.model.matching.filecheck import Change, changes, parse, run

TEXT = """def f(x):
    y = convolution_relu(x, _frozen_param0, _frozen_param1)
    y = foo(y)

    y = foo(y)
    return y
"""


def outcomes(checks: str, text: str = TEXT) -> list[str]:
    """Return what the checks say of each changed text: nothing where they still hold, else the directive that fails."""
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
    assert outcomes(directive) == [directive]


def test_one_of_several_matches_is_not_enough() -> None:
    """A check asks for one match: with another in its stead it holds, and rightly."""
    (change,) = changes(parse("CHECK: foo"), TEXT)
    assert change.kind is Change.REMOVED
    assert "foo" not in (change.text or "foo")


def test_a_directive_that_matches_the_empty_text_survives() -> None:
    assert outcomes("CHECK: foo\nCHECK-SAME: {{.*}}") == ["CHECK: foo", ""]


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
@pytest.mark.parametrize("around", ["{}\nCHECK: convolution", "CHECK: convolution\n{}\nCHECK: return", "CHECK: return\n{}"])
def test_a_forbidden_line_is_put_in(forbidden: str, around: str) -> None:
    assert forbidden in outcomes(around.format(forbidden))


def test_a_forbidden_text_is_put_where_the_next_line_stays_the_next() -> None:
    checks = "CHECK: convolution{{.*}}_frozen_param\nCHECK-NOT: bar\nCHECK-NEXT: foo"
    assert outcomes(checks)[1] == "CHECK-NOT: bar"


def test_what_the_next_line_would_take_first_survives() -> None:
    """Before the first ``foo`` there is no ``foo``, whatever the text: such a CHECK-NOT says nothing."""
    assert outcomes("CHECK: convolution\nCHECK-NOT: foo\nCHECK: foo") == ["CHECK: convolution", "", "CHECK: foo"]
