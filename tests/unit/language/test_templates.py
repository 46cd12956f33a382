"""Templates: what an expression gives, what is refused, and that nothing is evaluated twice."""

from pathlib import Path
from typing import Any

import pytest

from torch_conformance.language.read import templates
from torch_conformance.language.read.templates import (
    MAX_EXPRESSION,
    MAX_RESULT,
    TemplateError,
    parse,
)
from torch_conformance.model.document import Document

NAMES: dict[str, Any] = {
    "n": 4,
    "half": 0.5,
    "on": True,
    "off": False,
    "nothing": None,
    "text": "abc",
    "shape": [4, 5],
    "pair": {"first": 1, "second": {"third": "x"}, "items": "mine"},
    "looks": "{{ n }}",
    "device": "cpu",
    "backend": "cpu",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("{{ n }}", 4),
            ("{{n}}", 4),
            ("{{ half }}", 0.5),
            ("{{ on }}", True),
            ("{{ nothing }}", None),
            ("{{ text }}", "abc"),
        ),
        *(
            ("{{ shape }}", [4, 5]),
            ("{{ pair }}", NAMES["pair"]),
            ("{{ pair.first }}", 1),
            ("{{ pair.second.third }}", "x"),
        ),
        *(("{{ pair.items }}", "mine"), ("{{ pair['first'] if false else n }}", TemplateError)),
        *(
            ("{{ n + 1 }}", 5),
            ("{{ n - 5 }}", -1),
            ("{{ n * n }}", 16),
            ("{{ n / 8 }}", 0.5),
            ("{{ n // 3 }}", 1),
            ("{{ n % 3 }}", 1),
        ),
        *(
            ("{{ -n }}", -4),
            ("{{ +n }}", 4),
            ("{{ (n + 1) * 2 }}", 10),
            ("{{ n * half }}", 2.0),
            ("{{ 'a' + text }}", "aabc"),
        ),
        *(
            ("{{ n == 4 }}", True),
            ("{{ n != 4 }}", False),
            ("{{ 1 < n <= 4 }}", True),
            ("{{ n > 4 }}", False),
            ("{{ n >= 5 }}", False),
        ),
        *(
            ("{{ 5 in shape }}", True),
            ("{{ n not in shape }}", False),
            ("{{ 'b' in text }}", True),
            ("{{ 'first' in pair }}", True),
        ),
        *(
            ("{{ not on }}", False),
            ("{{ on and off }}", False),
            ("{{ off or n }}", 4),
            ("{{ 1 if on else 2 }}", 1),
        ),
        *(
            ("{{ 1 if off else 2 }}", 2),
            ("{{ 'x' }}", "x"),
            ("{{ 1e3 }}", 1000.0),
            ("{{ true }}", True),
            ("{{ none }}", None),
        ),
        *(
            ("{{ '}}' }}", "}}"),
            ("{{ '{{ n }}' }}", "{{ n }}"),
            ("a {{ n }} b", "a 4 b"),
            ("{{ n }}{{ n }}", "44"),
            ("{{ n }} ", "4 "),
        ),
        *(
            (" {{ n }}", " 4"),
            ("{{ half }}x", "0.5x"),
            ("{{ n }}\n", "4\n"),
            ("{{ on }}!", "true!"),
            ("{{ nothing }}!", "null!"),
        ),
        *(("{{ text }}!", "abc!"), ("# {{ n }}", "# 4"), ("a\n# x\n{{ n }}", "a\n# x\n4")),
        # text that a template gives is not parsed again
        *(
            ("{{ looks }}", "{{ n }}"),
            ("a {{ looks }}", "a {{ n }}"),
            ("{{ looks + 'x' }}", "{{ n }}x"),
        ),
        *(("no template", "no template"), ("a }} b", "a }} b"), ("{ n }", "{ n }")),
    ],
)
def test_value_and_type(text: str, value: Any) -> None:
    if value is TemplateError:
        with pytest.raises(TemplateError):
            parse(text).evaluate(NAMES)
        return
    found = parse(text).evaluate(NAMES)
    assert (type(found), found) == (type(value), value)


REFUSED = [
    *(
        "n()",
        "n | upper",
        "n is odd",
        "n ** 2",
        "n[0]",
        "shape[0:1]",
        "pair['first']",
        "[n]",
        "(n, n)",
        "n, n",
        "{'a': n}",
    ),
    *("lambda: n", "f'{n}'", "b'n'", "(n := 4)", "n @ n"),
]
UNDERSCORES = ["n.__class__", "pair.first._x", "_n"]
NO_SYNTAX = ["", "n +", "n n", "n ~ n", "1 if n", "a = n", "*", "n) + (n"]
UNKNOWN = ["m", "n or m", "n if on else m", "self", "loop", "namespace"]
NO_NUMBERS = ["'a' * 3", "shape * 3", "shape + shape", "on + 1", "text + n", "'%s' % n", "-text"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((f"{{{{ {inner} }}}}", "template-refused") for inner in REFUSED),
        *((f"{{{{ {inner} }}}}", "template-underscore") for inner in UNDERSCORES),
        *((f"{{{{ {inner} }}}}", "template-syntax") for inner in NO_SYNTAX),
        *((f"{{{{ {inner} }}}}", "unknown-name") for inner in UNKNOWN),
        *((f"{{{{ {inner} }}}}", "template-no-number") for inner in NO_NUMBERS),
        *((f"{{{{ pair.{name} }}}}", "unknown-attribute") for name in ("frist", "keys")),
        *(
            (f"{{{{ {inner} }}}}", "template-no-attributes")
            for inner in ("text.upper", "nothing.x")
        ),
        *((f"{{{{ {inner} }}}}", "template-comparison") for inner in ("n < text", "'a' in n")),
        *((f"a {{{{ {inner} }}}}", "template-list-in-text") for inner in ("shape", "pair")),
        *((text, "template-without-end") for text in ("{{ n", "{{ 'a }}", "{{ n # a }}")),
        ("{{ n / 0 }}", "template-arithmetic"),
        ("{% if n %}{{ n }}{% endif %}", "template-statement"),
        ("{{ n }}{# a #}", "template-comment"),
    ],
)
def test_what_is_refused(text: str, code: str) -> None:
    with pytest.raises(TemplateError) as caught:
        parse(text).evaluate(NAMES)
    assert caught.value.problem.code == code


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["n{}", "'{}'", "1{}", "'}}}}' + '{}'"])
def test_an_expression_has_at_most_200_characters(inner: str) -> None:
    room = MAX_EXPRESSION - len(inner.format(""))
    filling = "1" * room if "1" in inner or "n" in inner else "a" * room
    parse("{{ " + inner.format(filling) + " }}")
    with pytest.raises(TemplateError):
        parse("{{ " + inner.format(filling + "1") + " }}")


@pytest.mark.parametrize("text", ["{{ a + a }}", "{{ a }}{{ a }}", "{{ a }}b", "{{ whole }}"])
def test_a_result_has_at_most_10_000_characters(text: str) -> None:
    names = {"a": "x" * 5_000, "whole": "x" * 10_001}
    if text == "{{ a }}b":
        assert len(parse(text).evaluate(names)) == 5_001
        names["a"] = "x" * MAX_RESULT
    elif text != "{{ whole }}":
        assert len(parse(text).evaluate(names)) == MAX_RESULT
        names["a"] += "x"
    with pytest.raises(TemplateError):
        parse(text).evaluate(names)


@pytest.mark.parametrize(
    "operation", ["n * n * n * n", "1e308 * 10", "n / 1e-308 / n / 1e-308", "-n * n * n * n"]
)
def test_numbers_do_not_grow_without_end(operation: str) -> None:
    with pytest.raises(TemplateError):
        parse("{{ " + operation + " }}").evaluate({"n": 10**99})


def test_nesting_is_bounded() -> None:
    assert parse("{{ " + "(" * 90 + "n" + ")" * 90 + " }}").evaluate(NAMES) == 4
    assert parse("{{ " + "not " * 40 + "n }}").evaluate(NAMES) is True
    assert parse("{{ " + "-" * 199 + "n }}").evaluate(NAMES) == -4


# -- where templates stand -------------------------------------------------------------------------


def test_facts_are_deferred_and_evaluated_when_they_are_there() -> None:
    deferred = templates.filled(
        {"a": ["{{ facts.dir + '/' + backend }}"], "b": "{{ backend }}"}, {"backend": "cpu"}
    )
    assert isinstance(deferred["a"][0], templates.Deferred)
    assert deferred["b"] == "cpu"
    assert templates.as_text(deferred) == {"a": ["{{ facts.dir + '/' + backend }}"], "b": "cpu"}
    assert templates.resolve_facts(deferred, {"dir": "/ck"}) == {"a": ["/ck/cpu"], "b": "cpu"}
    with pytest.raises(TemplateError, match="unknown attribute 'dir'"):
        templates.resolve_facts(deferred, {"arch": "sm_90"})


def test_text_that_a_fact_gives_is_not_parsed_again() -> None:
    assert (
        templates.resolve_facts(templates.filled("{{ facts.dir }}", {}), {"dir": "{{ facts.dir }}"})
        == "{{ facts.dir }}"
    )


def test_code_and_patterns_hold_no_templates() -> None:
    braces = "{{ n }}"
    spec = {
        "summary": braces,
        "tags": [braces],
        "matrix": {"n": [braces]},
        "exclude": [{"n": braces, "reason": braces}],
        "requires": [{"module": braces}],
        "prelude": braces,
        "function": braces,
        "functions": {
            "one": braces,
            "two": {"module": braces, "kwargs": {"match": braces, braces: 1}},
        },
        "expect": [
            {"filecheck": braces},
            {"filecheck": {"checks": braces}},
            {"raises": {"type": braces, "match": braces}},
            {"equals": {"match": braces}},
        ],
        "steps": [
            {"call": {"match": braces}, "expect": [{"filecheck": braces}]},
            {"api": {"kwargs": {"filecheck": braces}}},
        ],
    }
    assert {
        place
        for place, _ in templates.occurrences(
            Document(path=Path(), file="", data=spec, marks={}, key_marks={})
        )
    } == {
        ("summary",),
        ("requires", 0, "module"),
        ("functions", "two", "module"),
        ("functions", "two", "kwargs", "match"),
        ("expect", 2, "raises", "type"),
        ("expect", 3, "equals", "match"),
        ("steps", 0, "call", "match"),
        ("steps", 1, "api", "kwargs", "filecheck"),
    }
