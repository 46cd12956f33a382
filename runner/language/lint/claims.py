"""Rules of claims that stand twice: in two specs, or in one step."""

import ast
import json
from collections.abc import Callable, Iterator
from typing import Any

from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.read.anatomy import RawExpectation
from runner.language.read.document import DataPath

_TOLD = ("summary", "covers", "tags", "timeout", "on_request", "isolation", "exclusive")
"""Keys that do not change what a spec claims."""


def same_summary(scene: Scene) -> Iterator[Finding]:
    """Yield each spec whose summary another one has, up to case, spaces and the last full stop."""
    yield from _twice(scene, "same-summary", _summary, ("summary",), "says the same", "say what differs, or remove one of them")


def same_body(scene: Scene) -> Iterator[Finding]:
    """Yield each spec that claims of the same function the same as another one, with other words."""
    hint = "remove one of them, and give its 'covers' to the other"
    yield from _twice(scene, "same-body", _body, (), "claims the same of the same function", hint)


def _twice(scene: Scene, rule: str, key: Callable[[Spec], str], path: DataPath, what: str, hint: str) -> Iterator[Finding]:
    first: dict[str, Spec] = {}
    for spec in scene.specs:
        other = first.setdefault(key(spec), spec)
        if other is not spec:
            where = other.document.position(path)
            yield Finding(rule=rule, position=spec.document.position(path), message=f"{other.id} {what} ({where})", hint=hint)


def _summary(spec: Spec) -> str:
    return " ".join(str(spec.anatomy.data["summary"]).lower().split()).removesuffix(".")


def _body(spec: Spec) -> str:
    """Return the content of a spec without its words, with Python as its syntax tree, so that comments and blanks do not count."""
    anatomy = spec.anatomy
    data: dict[str, Any] = {key: value for key, value in anatomy.data.items() if key not in _TOLD}
    data["backends"] = sorted(data["backends"])
    for function in anatomy.functions.values():
        if function.tree is not None and len(function.path) == 1:
            data[str(function.path[0])] = ast.dump(function.tree)
        elif function.tree is not None:
            data["functions"] = {**data["functions"], function.name: ast.dump(function.tree)}
    preludes = [ast.dump(tree) for tree in anatomy.prelude_trees.values()]
    inherited = [{key: value for key, value in one.data.items() if key not in ("tags", "prelude")} for one in anatomy.spec.defaults]
    data.pop("prelude", None)
    return json.dumps([data, preludes, inherited], sort_keys=True, default=str)


def repeated_expectation(scene: Scene) -> Iterator[Finding]:
    """Yield each expectation that its step has already, word for word."""
    for spec in scene.specs:
        for step in spec.anatomy.steps:
            first: dict[str, RawExpectation] = {}
            for raw in step.expectations:
                other = first.setdefault(json.dumps([raw.kind, raw.body], sort_keys=True, default=str), raw)
                if other is not raw:
                    where = spec.document.position(other.path, key=True)
                    yield Finding(
                        rule="repeated-expectation",
                        position=spec.document.position(raw.path, key=True),
                        message=f"line {where.line} expects the same {raw.kind} of this step",
                        hint="remove one of them, or write what the second one was to expect",
                    )


RULES = (
    Rule(
        id="same-summary",
        summary="Two specs have the same summary, up to case, spaces and a full stop",
        why="A report shows the summary. Who reads it cannot tell which claim failed, and one of the specs may be a copy.",
        bad="# specs/area/one.yaml and specs/area/two.yaml\nsummary: A product of two matrices is right",
        good="# specs/area/two.yaml\nsummary: A product of two transposed matrices is right",
        check=same_summary,
    ),
    Rule(
        id="same-body",
        summary="Two specs claim the same of the same function, on the same backends",
        why="The second one costs time and finds nothing. A change of one of them leaves the other behind. Comments, form, summary, "
        "tags and `covers` do not make a difference; inputs, options and expectations do.",
        bad="# two files with these lines\nfunction: 'def fn(x): return x.relu()'\nexpect: [{close: {to: eager}}]",
        good="# one file with the 'covers' of both",
        check=same_body,
    ),
    Rule(
        id="repeated-expectation",
        summary="A step has the same expectation twice, word for word",
        why="Both are judged alike, so the second one finds nothing. It is often a copy in which one value was to be changed. "
        "The same expectation of two steps is none: each step gives facts of its own.",
        bad="expect:\n  - close: {to: eager}\n  - counter: {inductor.fxgraph_cache_miss: 1}\n  - counter: {inductor.fxgraph_cache_miss: 1}",
        good="expect:\n  - close: {to: eager}\n  - counter: {inductor.fxgraph_cache_miss: 1}\n  - counter: {inductor.fxgraph_cache_hit: 0}",
        check=repeated_expectation,
    ),
)
