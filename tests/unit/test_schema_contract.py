"""The schemas own the shape, code owns the meaning: here each table in code is held against its schema.

A failure names the file to edit. Tables of the worker, which imports torch, are read by ``ast``.
"""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runner.core.conditions import CODE, CONDITIONS
from runner.core.expectation import Status
from runner.core.outcomes import Outcome
from runner.core.targets import ALL_STAGES, TARGETS, WRAPPER
from runner.execute.services import SERVICES
from runner.language.backends import load_backends
from runner.language.check import functions, names, spec
from runner.language.expand import options
from runner.language.names import published
from runner.language.names.tables import NameKind
from runner.language.read import schema, substitution
from runner.language.read.anatomy import BESIDE_KIND
from runner.system.capabilities import CAPABILITIES
from runner.vocabulary.expectations import EXPECTATIONS, MEASURES, REPEATS, samples
from runner.vocabulary.expectations.close_rules import DEFAULTS as TOLERANCES
from runner.vocabulary.inputs import INPUTS, REPEAT, InputKind
from runner.vocabulary.offline import RESOURCES
from runner.vocabulary.steps import SAMPLES, STEPS, TRITON, StepKind
from runner.vocabulary.steps.actions import GENERATORS
from tests.json_schemas import validator_of

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").glob("*.schema.json"))
LANGUAGE = ["backends", "common", "defaults", "expectations", "inputs", "profile", "spec", "steps", "waivers"]
"""What people write, and editors complete and explain; the others are what programs exchange."""

KEYWORDS = frozenset(
    ["$schema", "$id", "$ref", "$defs", "title", "description", "examples", "type", "enum", "const", "properties", "additionalProperties"]
    + ["propertyNames", "required", "dependentRequired", "items", "uniqueItems", "pattern", "if", "then", "else", "allOf", "anyOf", "oneOf"]
    + ["not", "contains", "patternProperties"]
    + ["minLength", "minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum", "exclusiveMinimum"]
)
IN_PLACE = ("additionalProperties", "propertyNames", "items", "contains", "if", "then", "else", "not")


def definition(file: str, name: str) -> Any:
    return schema.load(file)["$defs"][name]


def nodes(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema within a schema with its place; what is data (examples, enum, const) is passed over."""
    if not isinstance(node, dict):
        return
    yield place, node
    for key in ("properties", "$defs"):
        for name, part in node.get(key, {}).items():
            yield from nodes(part, f"{place}/{key}/{name}")
    for key in IN_PLACE:
        yield from nodes(node.get(key), f"{place}/{key}")
    for key in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(node.get(key, [])):
            yield from nodes(part, f"{place}/{key}/{index}")


def every_node(files: list[str]) -> list[tuple[str, dict[str, Any]]]:
    return [found for file in files for found in nodes(schema.load(file), f"schemas/{file}.schema.json")]


# -- the schemas themselves -----------------------------------------------------------------------------------------


def test_the_files() -> None:
    assert set(LANGUAGE) <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_every_schema_is_one(file: str) -> None:
    Draft202012Validator.check_schema(schema.load(file))
    assert schema.load(file)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("file", FILES)
def test_every_keyword_is_known(file: str) -> None:
    """``additional_properties`` is no mistake to JSON Schema: it is ignored."""
    strange = {(place, key) for place, node in every_node([file]) for key in node if key not in KEYWORDS}
    assert not strange, f"edit these, or KEYWORDS here when the word is JSON Schema's: {strange}"


@pytest.mark.parametrize("file", FILES)
def test_every_reference_leads_to_a_definition(file: str) -> None:
    for place, node in every_node([file]):
        if "$ref" in node:
            target, _, pointer = node["$ref"].partition("#/$defs/")
            name = target.removesuffix(".schema.json") or file
            definitions = published.schema()["$defs"] if name == "names" else schema.load(name)["$defs"]
            assert pointer in definitions, f"edit {place}: no definition {node['$ref']}"


def test_every_definition_is_used() -> None:
    used = set()
    for place, node in every_node(FILES):
        file, _, name = node.get("$ref", "").partition("#/$defs/")
        used.add((file.removesuffix(".schema.json") or place.split("/")[1].split(".")[0], name))
    unused = [(file, name) for file in FILES for name in schema.load(file).get("$defs", {}) if (file, name) not in used]
    assert not unused, f"remove from schemas/: {unused}"


@pytest.mark.parametrize("file", FILES)
def test_every_definition_and_every_key_is_described(file: str) -> None:
    silent = []
    for place, node in every_node([file]):
        for key in ("properties", "$defs"):
            for name, part in node.get(key, {}).items():
                within = any(f"/{word}/" in f"{place}/" for word in ("if", "not", "anyOf", "oneOf")) or place.endswith("else")
                if isinstance(part, dict) and not within and not _described(part, file):
                    silent.append(f"{place}/{key}/{name}")
    assert not silent, f"add a description: {silent}"


def _described(part: dict[str, Any], file: str) -> bool:
    if "description" in part:
        return True
    target, _, name = part.get("$ref", "").partition("#/$defs/")
    return bool(name) and "description" in definition(target.removesuffix(".schema.json") or file, name)


@pytest.mark.parametrize("file", ["spec", "defaults", "backends", "waivers"])
def test_every_key_that_people_write_has_an_example(file: str) -> None:
    without = set()
    for place, node in nodes(schema.resolved(file), f"schemas/{file}.schema.json"):
        for name, part in node.get("properties", {}).items():
            if isinstance(part, dict) and not any(word in part for word in ("examples", "enum", "const")) and part.get("type") != "boolean":
                without.add(f"{place}/properties/{name}")
    assert not without, f"add examples: {sorted(without)}"


@pytest.mark.parametrize("file", LANGUAGE)
def test_every_definition_that_people_write_has_an_example(file: str) -> None:
    without = [name for name, part in schema.load(file).get("$defs", {}).items() if not part.get("examples")]
    assert not without, f"edit schemas/{file}.schema.json, add examples to {without}"


@pytest.mark.parametrize("file", FILES)
def test_every_example_is_one(file: str) -> None:
    count = 0
    for place, node in nodes(schema.resolved(file), f"schemas/{file}.schema.json"):
        for example in node.get("examples", []):
            errors = [error.message for error in validator_of(node).iter_errors(example)]
            assert not errors, f"edit {place}: the example {example!r} does not fit: {errors}"
            count += 1
    for name in schema.load(file).get("$defs", {}):
        node = schema.definition(file, name)
        for example in node.get("examples", []):
            errors = [error.message for error in validator_of(node).iter_errors(example)]
            assert not errors, f"edit schemas/{file}.schema.json, $defs/{name}: the example {example!r} does not fit: {errors}"
            count += 1
    assert count or file not in LANGUAGE


def test_what_has_keys_of_its_own_takes_no_others() -> None:
    """Else a misspelt key would be ignored. ``exclude`` takes the keys of the matrix, which code checks."""
    for place, node in every_node(LANGUAGE):
        within = any(f"/{word}/" in f"{place}/" for word in ("if", "not", "anyOf", "oneOf", "else"))
        if "properties" in node and not within and not place.endswith("/exclude/items"):
            closed = node.get("additionalProperties", True) is not True
            assert closed, f'edit {place}: add "additionalProperties": false'


# -- expectations ---------------------------------------------------------------------------------------------------


def test_expectations() -> None:
    words = set(definition("expectations", "expectation")["properties"])
    assert words == set(EXPECTATIONS), (
        "schemas/expectations.schema.json (expectation) against EXPECTATIONS in runner/vocabulary/expectations/__init__.py"
    )


@pytest.mark.parametrize("word", EXPECTATIONS)
def test_the_class_of_an_expectation_is_called_as_it(word: str) -> None:
    assert EXPECTATIONS[word].kind == word, f"edit kind in runner/vocabulary/expectations: {EXPECTATIONS[word].__module__}"


def test_measures() -> None:
    assert set(MEASURES) - {samples.KIND} | set(REPEATS) <= set(EXPECTATIONS), "samples is how close is measured for a source"
    here = {"counters", "metrics", "code", "raised"}  # what every step's facts hold
    for word, made in EXPECTATIONS.items():
        asks = made.parse(EXAMPLES[word]).measurement() is not None
        assert asks is (word in MEASURES or word in REPEATS), (
            f"runner/vocabulary/expectations: measurement() of {word} against MEASURES; {here} need none"
        )


EXAMPLES = {word: schema.definition("expectations", word)["examples"][0] for word in EXPECTATIONS}


@pytest.mark.parametrize("word", EXPECTATIONS)
def test_the_fields_of_an_expectation_are_the_keys_of_its_schema(word: str) -> None:
    fields = {field.name for field in dataclasses.fields(EXPECTATIONS[word])}
    node = definition("expectations", word)
    shape = schema.definition("expectations", word)
    shape = shape if "properties" in shape else shape.get("then", {})
    where = f"schemas/expectations.schema.json ({word}) against {EXPECTATIONS[word].__module__}"
    if "additionalProperties" not in shape or "$ref" in node or shape["additionalProperties"] is not False:
        assert len(fields) == 1, f"{where}: a body without keys of its own is one field"
    else:
        assert fields == set(shape["properties"]), where


# -- steps and inputs -----------------------------------------------------------------------------------------------


def kinds(node: Any) -> list[str]:
    return [key for branch in node["oneOf"] for key in branch["required"]]


WRITTEN = [word for word in STEPS if word not in (SAMPLES, TRITON)]
"""The steps that specs write below steps; a source and the key triton make the others."""


def test_steps() -> None:
    step = definition("steps", "step")
    where = "schemas/steps.schema.json (step) against STEPS in runner/vocabulary/steps/__init__.py"
    assert set(step["properties"]) - set(BESIDE_KIND) == set(WRITTEN), where
    assert sorted(kinds(step)) == sorted(WRITTEN), f"{where}: oneOf"


@pytest.mark.parametrize("word", WRITTEN)
def test_the_fields_of_a_step_are_the_keys_of_its_schema(word: str) -> None:
    kind, shape = STEPS[word], definition("steps", word)
    assert kind.kind == word, f"edit kind in {kind.__module__}"
    fields = {field.name.rstrip("_") for field in dataclasses.fields(kind)}
    where = f"schemas/steps.schema.json ({word}) against {kind.__module__}"
    of_a_case = {"entry"} if kind.traits.python else set()
    assert fields - of_a_case == (set(shape["properties"]) if "properties" in shape else {"items"}), where
    without_default = {field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}
    assert without_default == (set(shape.get("required", [])) if "properties" in shape else {"items"}), where
    assert ("as" in shape.get("properties", {})) is kind.traits.has_result, where
    assert ("context" in shape.get("properties", {})) is kind.traits.enters_context, where
    assert kind.runs is not StepKind.runs, f"{kind.__module__} has no run"
    for example in shape["examples"]:
        assert isinstance(kind.parse(example), kind), where


def test_the_fields_of_a_kernel_are_the_keys_of_its_schema() -> None:
    kind, shape = STEPS[TRITON], definition("spec", TRITON)
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields - {"entry"} == set(shape["properties"])
    assert {field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING} == set(shape["required"])
    assert set(TARGETS) == set(definition_of_spec("targets")["items"]["enum"]), "schemas/spec.schema.json against core/targets.py"
    stages = definition("expectations", "filecheck")["then"]["properties"]["stage"]["enum"]
    assert stages == [*ALL_STAGES, WRAPPER]
    resources = set(definition("expectations", "resources")["properties"])
    assert resources == {*RESOURCES, "when"}
    for example in shape["examples"]:
        assert isinstance(kind.parse(example), kind)


def definition_of_spec(key: str) -> Any:
    return schema.load("spec")["properties"][key]


def test_inputs() -> None:
    node = definition("inputs", "input")
    where = "schemas/inputs.schema.json (input) against INPUTS in runner/vocabulary/inputs/__init__.py"
    assert sorted(kinds(node["then"])) == sorted(INPUTS), where
    beside = {key for kind in INPUTS.values() for key in kind.keys}
    assert {*INPUTS, *beside, REPEAT} == set(node["properties"]), where
    assert list(INPUTS)[-1] == "value", "beside full it is the number: the kinds are tried in order"


@pytest.mark.parametrize("word", INPUTS)
def test_the_class_of_an_input_is_called_as_it(word: str) -> None:
    assert INPUTS[word].kind == word, f"edit kind in {INPUTS[word].__module__}"
    assert INPUTS[word].makes is not InputKind.makes, f"{INPUTS[word].__module__} makes no {word}"


# -- tables of the worker, by ast -----------------------------------------------------------------------------------


def table(file: str, name: str) -> list[str]:
    """Return the keys of a literal map, or the words of a literal list, at the top of a module."""
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value: Any = node.value  # type: ignore[union-attr]
            if isinstance(value, ast.Dict):
                return [ast.literal_eval(key) for key in value.keys if key is not None]
            return list(ast.literal_eval(value))
    pytest.fail(f"{file} has no table {name}: edit it, or this test")


def match_words(file: str, function: str) -> set[str]:
    """Return the words that a function's ``match`` statements know."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    (found,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    patterns = [case.pattern for node in ast.walk(found) if isinstance(node, ast.Match) for case in node.cases]
    leaves = [leaf for pattern in patterns for leaf in (pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern])]
    return {ast.literal_eval(leaf.value) for leaf in leaves if isinstance(leaf, ast.MatchValue)}


def test_functions() -> None:
    shape = definition("spec", "function")["then"]
    where = "schemas/spec.schema.json (function) against FUNCTION_KEYS in runner/language/check/functions.py"
    assert sorted(kinds(shape)) == sorted(functions.FUNCTION_KEYS), where
    assert {*functions.FUNCTION_KEYS, *(key for keys in functions.FUNCTION_KEYS.values() for key in keys)} == set(shape["properties"]), (
        where
    )


def test_resets() -> None:
    words = {*table("runner/worker/torch_compat/torch_state.py", "RESETS"), GENERATORS}
    assert set(definition("steps", "reset")["items"]["anyOf"][0]["enum"]) == words, (
        "schemas/steps.schema.json (reset) against RESETS in runner/worker/torch_compat/torch_state.py"
    )


def test_contexts() -> None:
    items = definition("common", "context_body")["items"]
    where = "schemas/common.schema.json (context) against CONTEXTS in runner/worker/case/sides.py"
    assert set(items["then"]["anyOf"][0]["enum"]) == set(table("runner/worker/case/sides.py", "CONTEXTS")), where
    assert set(items["else"]["properties"]) == {"autocast", "ref"}, f"{where}: a context with arguments needs its code in _context"


def test_torch_state() -> None:
    words = match_words("runner/worker/torch_compat/torch_state.py", "set_torch_state")
    where = "schemas/common.schema.json (torch_state) against set_torch_state in runner/worker/torch_compat/torch_state.py"
    assert set(definition("common", "torch_state")["properties"]) == words, where


def test_clearing() -> None:
    assert definition("steps", "clear_counters")["properties"]["only"]["enum"] == ["counters", "metrics"], (
        "runner/vocabulary/steps/actions.py, run"
    )


def test_dtypes_and_formats() -> None:
    dtypes = definition("common", "dtype")["anyOf"][0]["enum"]
    assert set(TOLERANCES) <= set(dtypes), "runner/vocabulary/expectations/close_rules.py against schemas/common.schema.json (dtype)"
    formats = definition("inputs", "input")["properties"]["memory_format"]["anyOf"][0]["enum"]
    assert definition("expectations", "strides")["properties"]["contiguous"]["then"]["anyOf"][0]["enum"] == formats


# -- tables of the runner -------------------------------------------------------------------------------------------


def test_conditions() -> None:
    words = set(definition("common", "when_judged")["properties"])
    assert words == set(CONDITIONS), "schemas/common.schema.json (when_judged) against CONDITIONS in runner/core/conditions.py"
    of_expectations = {word: node for word, node in definition("common", "when_judged")["properties"].items() if word != CODE}
    assert of_expectations == definition("common", "when")["properties"], "only expectations have a condition on code"
    vendors = definition("common", "when")["properties"]["vendor"]["items"]["enum"]
    assert set(vendors) == set(spec.VENDORS), "schemas/common.schema.json (when, vendor) against VENDORS in runner/language/check/spec.py"


def test_services() -> None:
    words = schema.load("spec")["properties"]["services"]["items"]["enum"]
    assert words == list(SERVICES), "schemas/spec.schema.json (services) against SERVICES in runner/services"
    assert set(words) <= set(CAPABILITIES), "a service is a capability of its name: runner/system/capabilities.py"


def test_capabilities_of_examples() -> None:
    named = [word for example in definition("common", "requires")["examples"] for word in example]
    assert {next(iter(word)) if isinstance(word, dict) else word for word in named} <= set(CAPABILITIES), (
        "schemas/common.schema.json (requires)"
    )


def test_sections() -> None:
    spec = schema.load("spec")["properties"]
    of_options = {name for name, part in spec.items() if part.get("$ref", "").endswith("/options_or_template")}
    assert of_options == set(names.OPTION_KINDS), "schemas/spec.schema.json against OPTION_KINDS in runner/language/check/names.py"
    assert {names.OPTION_KINDS[name].value for name in of_options} == of_options <= {kind.value for kind in NameKind}
    assert set(options.SECTIONS) <= set(spec), "SECTIONS in runner/language/expand/options.py"
    assert set(spec) > substitution.SECTIONS, "SECTIONS in runner/language/read/substitution.py"
    assert set(spec) - substitution.SECTIONS == {
        "tags",
        "backends",
        "matrix",
        "exclude",
        "services",
        "on_request",
        "source",
        "targets",
        "prelude",
        "entry",
        "audit",
        "exclusive",
        "isolation",
    }, "a new key of a spec: say in runner/language/read/substitution.py whether templates stand in it"


def test_sections_of_a_backend(tmp_path: Path) -> None:
    keys = schema.load("backends")["additionalProperties"]["properties"]
    sections = set(keys) & set(options.SECTIONS)
    values = {"env": "{A: b}", "torch": "{seed: 1}", "compile": "{dynamic: true}"}
    body = "".join(f"  {name}: {values.get(name, '{freezing: true}')}\n" for name in sorted(sections))
    (tmp_path / "vendor.yaml").write_text(f"vendor:\n  summary: A backend of a vendor\n  device: cpu\n  compiles: false\n{body}")
    settings = load_backends([tmp_path / "vendor.yaml"]).by_name["vendor"].settings
    assert set(settings) == sections, "schemas/backends.schema.json against _backend in runner/language/backends.py"


def test_defaults_are_keys_of_a_spec() -> None:
    defaults = schema.load("defaults")["properties"]
    assert set(defaults) - {"extends"} <= set(schema.load("spec")["properties"])
    for name, part in defaults.items():
        if name != "extends":
            own = schema.load("spec")["properties"][name]["$ref"].removesuffix("_or_template")
            assert part["$ref"] == own, f"schemas/defaults.schema.json: {name}"


def test_outcomes_and_statuses() -> None:
    assert definition("journal", "outcome")["enum"] == [outcome.label for outcome in Outcome], (
        "schemas/journal.schema.json against runner/core/outcomes.py"
    )
    statuses = definition("journal", "verdict")["properties"]["status"]["enum"]
    assert statuses == [status.value for status in Status], "schemas/journal.schema.json against runner/core/expectation.py"
