"""Mistakes in templates, at every place of the schemas' own examples: each is a problem of the
spec, and never an exception of the program.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from torch_conformance.language import torch_names
from torch_conformance.language.load import inspect_specs
from torch_conformance.language.read import spec_schema, templates
from torch_conformance.language.read.document import DataPath, walk
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.language.read.yaml_source import parse
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model.diagnostics import errors

SPEC: Mapping[str, Any] = {
    "summary": "A claim of {{ n }}",
    "backends": ["cpu"],
    "matrix": {"n": [2, 3], "row": [{"id": "one", "value": {"a": 4}}]},
    "function": "def fn(x):\n    return x + params.n\n",
    "inputs": [{"ones": ["{{ n }}", "{{ row.a }}"]}],
    "expect": [{"close": {"to": "eager"}}],
}
SECTIONS: Mapping[str, Any] = {
    "covers": ["a.py::A::test[{{ n }}]"],
    "requires": [{"python": ">=3.10"}, "{{ 'cxx' if n == 2 else '' }}"],
    "config": [{"set": {"max_autotune": True}, "override": True}, {"when": {"backend": "cpu"}}],
    "dynamo_config": {"cache_size_limit": 4},
    "env": [{"when": {"backend": "cpu"}, "set": {"PLANTED": "1"}}],
    "torch": {"seed": 3, "deterministic": True, "float32_matmul_precision": "high"},
    "context": ["no_grad", {"autocast": {"dtype": "bfloat16"}}],
    "let": {"value": {"randn": [2, 3], "dtype": "float32", "requires_grad": True}},
    "spies": {"seen": {"method": "torch.Tensor.add", "record": "kept"}},
    "compile": {"dynamic": True, "options": {"max_autotune": True}},
    "timeout": 30,
    "on_request": "a reason",
    "control": {"config": {"max_autotune": False}, "fails": ["close"]},
}
"""Values of the keys at the top that have no examples in a schema of their own."""

MISTAKES = (
    "{{ misspelt }}",
    "{{ 0 if misspelt == 4 else 4 }}",
    "{{ row.misspelt }}",
    "{{ n.misspelt }}",
    "{{ n",
    "{{ n + }}",
    "{{ f(n) }}",
    "{{ n / 0 }}",
    "{{ n < 'a' }}",
)
"""Templates that are wrong wherever they are."""

VALUES = ("{{ row }}", "{{ n - 9 }}", "{{ none }}", "{{ 'text' }}", "{{ n / 3 }}", "{{ n == 2 }}")
"""Templates that are wrong in some places and right in others."""


def specs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a spec for each section, and for each example of the schemas."""
    for key, value in SECTIONS.items():
        yield key, {**SPEC, key: value}
    for file, key in (("expectations", "expect"), ("steps", "steps")):
        for name, node in spec_schema.load(file)["$defs"].items():
            for example in node.get("examples", []):
                yield (
                    f"{key}.{name}",
                    {
                        **{word: value for word, value in SPEC.items() if word != "expect"},
                        key: [{name: example, **({"expect": []} if key == "steps" else {})}],
                    },
                )
    for example in spec_schema.load("inputs")["$defs"]["input"]["examples"]:
        yield "inputs", {**SPEC, "inputs": [example, *SPEC["inputs"]]}


def problems_of(data: Any) -> tuple[list[Any], frozenset[DataPath]]:
    path = Path("planted.yaml").absolute()
    content = json.dumps(data).encode()
    specs = [SpecPath(path=path, root=path.parent)]
    problems = inspect_specs(specs, (), None, texts={path: content}).problems
    document = parse(content.decode(), path=path)
    return errors(problems), frozenset(place for place, _ in templates.occurrences(document))


PLACES = {
    (name, *("*" if isinstance(key, int) else str(key) for key in path)): (data, path)
    for name, data in specs()
    for path, _ in walk(data)
    if path and path[0] not in ("matrix", "backends", "summary")
}
"""Each place once, whatever the index."""


@pytest.mark.parametrize("texts", [MISTAKES, VALUES], ids=["wrong-anywhere", "wrong-here"])
def test_a_mistake_in_a_template_is_a_problem_of_the_spec(
    texts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the files of torch are looked at once, and not for each of 500 specs
    torch = installed_torch()
    assert torch is not None
    names = torch_names.names_of_source(torch)
    monkeypatch.setattr(torch_names, "names_of_source", lambda _: names)
    assert len(PLACES) > 250
    seen = 0
    for number, (data, path) in enumerate(PLACES.values()):
        text = texts[number % len(texts)]
        planted = templates.replaced(data, path, text)
        try:
            problems, places = problems_of(planted)
        except Exception as error:
            raise AssertionError(f"{text} at {path} of {json.dumps(planted)}") from error
        if path in places and texts is MISTAKES:
            seen += 1
            assert problems, f"{text} at {path} of {json.dumps(planted)}"
    assert seen > 150 or texts is VALUES
