"""The published schemas, as an editor uses them: names are completed and checked, and what the
language allows is allowed.
"""

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.conftest import GOOD
from tests.json_schemas import validator
from tests.unit.language.test_names import make_torch
from torch_conformance.language.read.yaml_source import read
from torch_conformance.machine.installed_torch import torch_at
from torch_conformance.tools.author.commands import schema as published_names

VALID = sorted((Path(__file__).resolve().parents[2] / "specs" / "valid").glob("*.yaml"))


def accepts(text: str, name: str = "spec") -> bool:
    return validator(name).is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_valid_specs_fit(path: Path) -> None:
    found = [error.message for error in validator("spec").iter_errors(read(path).data)]
    assert not found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("inputs:", "config: {freezin: true}\ninputs:"),
        ("inputs:", "config: [{freezing: true}, {max_autotun: true}]\ninputs:"),
        ("inputs:", "config: [{when: {device: cpu}, set: {freezin: true}}]\ninputs:"),
        ("inputs:", "dynamo_config: {cache_size_limt: 8}\ninputs:"),
        ("inputs:", "functorch_config: {donated_bufer: true}\ninputs:"),
        ("inputs:", "compile: {options: {max_autotun: true}}\ninputs:"),
        ("inputs:", "compile: {mode: max-autotun}\ninputs:"),
        ("inputs:", "control: {config: {freezin: true}}\ninputs:"),
        ("inputs:", "requires: [tritn]\ninputs:"),
        ("inputs:", "requires: [triton, {modul: transformers}]\ninputs:"),
        ("inputs:", "requires: [module]\ninputs:"),
        ("close: {to: eager}", "counter: {inductor.fxgraph_cache_hits: 1}"),
        ("close: {to: eager}", "counter: {indcutor.fxgraph_cache_hit: 1}"),
        ("close: {to: eager}", "counter: {vendor.own: {min: 1}}"),
        ("close: {to: eager}", "metric: {generated_kernel_cont: 1}"),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_an_error_in_the_editor(old: str, new: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    assert not accepts(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[cpu]", "[mychip]"),
        ("[cpu]", "[npu, xpu, vendor-2]"),
        ("close: {to: eager}", "counter: {vendor.own: {min: 1, unlisted: true}}"),
        ("close: {to: eager}", "counter: {vendor.own: [{value: {min: 1, unlisted: true}}]}"),
        ("close: {to: eager}", "counter: {inductor.batch_mm: {min: 1}}"),
        ("close: {to: eager}", 'counter: {"graph_break.a text\\nof two lines": 1}'),
        ("inputs:", 'config: [{when: {torch: ">=2.14"}, set: {not_yet_known: true}}]\ninputs:'),
        ("inputs:", "compile: {backend: of_a_library}\ninputs:"),
        ("inputs:", "compile: {backend: eager, mode: null}\ninputs:"),
        ("inputs:", 'compile: {mode: "{{ mode }}"}\ninputs:'),
        ("inputs:", "requires: [triton, {module: transformers}]\ninputs:"),
        (
            "expect: [{close: {to: eager}}]",
            "steps: [{call: {as: one}}, {call: {}, expect: [{close: {to: one}}]}]",
        ),
        ("to: eager", "to: output.0"),
    ],
)
def test_editor_accepts_all_valid_specs(old: str, new: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    assert accepts(text), [
        error.message for error in validator("spec").iter_errors(yaml.safe_load(text))
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("defaults", "config: {freezin: true}"),
        (
            "backends",
            "mine: {summary: A backend of a vendor, device: cuda, config: {freezin: true}, "
            "proof: {graphs: 1}}",
        ),
        (
            "waivers",
            "waivers: [{cases: a, failure: {type: countr, match: x}, reason: A reason long "
            "enough, issue: A-1, until: '2027-01-01'}]",
        ),
    ],
)
def test_the_other_files_are_checked_too(name: str, text: str) -> None:
    assert not accepts(text, name)
    for wrong, right in (("freezin:", "freezing:"), ("countr", "counter")):
        text = text.replace(wrong, right)
    assert accepts(text, name)


# -- with the installed torch ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ("config", {"stand_in": False}, {"stand_ni": False}),
        ("config", {"stand_in": "{{ on }}"}, {"stand_in": 3}),
        ("counter", {"inductor.stand_ins": 1}, {"inductor.stand_in": 1}),
        ("backend", "cpu", "cup"),
    ],
)
def test_names_of_the_installed_torch_alone_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, right: object, wrong: object
) -> None:
    counters = (
        "def count():\n    from torch._dynamo.utils import counters\n    "
        'counters["inductor"]["stand_ins"] += 1\n'
    )
    root = make_torch(
        tmp_path, _inductor__config="stand_in: bool = True\n", _inductor__pass_one=counters
    )
    monkeypatch.setattr(published_names, "installed_torch", lambda: torch_at(root))
    names = published_names.names_of([], with_torch=True)
    of_part = Draft202012Validator({**names, "$ref": f"#/$defs/{part}"})
    assert (of_part.is_valid(right), of_part.is_valid(wrong)) == (True, False)
