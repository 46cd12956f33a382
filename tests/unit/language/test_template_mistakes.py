"""Mistakes in templates, at every place of the schemas' own examples: each is a problem of the
spec, and never an exception of the program.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from torch_conformance.language.load import inspect_specs
from torch_conformance.language.read import templates
from torch_conformance.language.read.document import walk
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.language.read.yaml_source import parse
from torch_conformance.machine import schemas
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
        for name, node in schemas.load(file)["$defs"].items():
            for example in node.get("examples", []):
                yield (
                    f"{key}.{name}",
                    {
                        **{word: value for word, value in SPEC.items() if word != "expect"},
                        key: [{name: example, **({"expect": []} if key == "steps" else {})}],
                    },
                )
    for example in schemas.load("inputs")["$defs"]["input"]["examples"]:
        yield "inputs", {**SPEC, "inputs": [example, *SPEC["inputs"]]}


def files_with_problems(texts: Mapping[Path, bytes]) -> set[str]:
    """Return the names of the files in which reading all of them finds an error."""
    specs = [SpecPath(path=path, root=path.parent) for path in texts]
    problems = errors(inspect_specs(specs, (), None, texts=texts).problems)
    return {Path(problem.position.file).name for problem in problems}


PLACES = {
    (name, *("*" if isinstance(key, int) else str(key) for key in path)): (data, path)
    for name, data in specs()
    for path, _ in walk(data)
    if path and path[0] not in ("matrix", "backends", "summary")
}
"""Each place once, whatever the index."""


@pytest.mark.parametrize("texts", [MISTAKES, VALUES], ids=["wrong-anywhere", "wrong-here"])
def test_a_mistake_in_a_template_is_a_problem_of_the_spec(
    texts: tuple[str, ...], tmp_path: Path
) -> None:
    """All places are read at once: what every reading does beside a spec takes far longer than the
    spec.
    """
    assert len(PLACES) > 250
    planted: dict[Path, bytes] = {}
    mistaken: dict[str, str] = {}
    for number, (data, path) in enumerate(PLACES.values()):
        text = texts[number % len(texts)]
        file = tmp_path / f"{number}.yaml"
        planted[file] = json.dumps(templates.replaced(data, path, text)).encode()
        document = parse(planted[file].decode(), path=file)
        if path in {place for place, _ in templates.occurrences(document)}:
            mistaken[file.name] = f"{text} at {path} of {planted[file].decode()}"
    try:
        found = files_with_problems(planted)
    except Exception:
        for file, content in planted.items():  # the one that is too much is named
            try:
                files_with_problems({file: content})
            except Exception as error:
                raise AssertionError(content.decode()) from error
        raise
    if texts is MISTAKES:
        assert len(mistaken) > 150
        assert [text for name, text in mistaken.items() if name not in found] == []
