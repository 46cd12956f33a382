"""Checks of a spec. Every problem has a position, and no problem stops the other checks."""

import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from torch_conformance.language.backends import Backends, read_requirements
from torch_conformance.language.check.functions import (
    device_problems,
    function_problems,
    input_problems,
    keys_read,
    path_problems,
    python_problems,
    required_packages,
)
from torch_conformance.language.check.names import (
    name_problems,
    option_names,
    option_problems,
)
from torch_conformance.language.check.steps import (
    expectation_problems,
    is_templated,
    named_value_problems,
    references,
    spy_problems,
    step_problems,
    value_problems,
)
from torch_conformance.language.read import matrix, python_source, spec_schema, templates
from torch_conformance.language.read.anatomy import (
    KEYS_OF_SOURCE,
    SOURCE,
    Anatomy,
    stage_of,
    with_data,
)
from torch_conformance.language.read.document import mapped
from torch_conformance.language.read.matrix import REPEAT, TARGETS
from torch_conformance.language.read.python_source import PARAMS
from torch_conformance.language.torch_names import (
    CONFIG_FILES,
    NameTables,
    committed_tables,
)
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.model.case import Case
from torch_conformance.model.conditions import (
    BadRange,
    Surroundings,
    VersionRange,
    as_list,
    holds,
    is_template,
)
from torch_conformance.model.devices import CPU, kind_of
from torch_conformance.model.diagnostics import Diagnostic, one_of, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.protocol import NO_ASSERTS
from torch_conformance.model.targets import EXAMPLE, OFFLINE_BACKENDS
from torch_conformance.optional.tools import hooks
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.close import Close
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.steps import TRITON


def check(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return all problems of a spec that fits the schema, except those of its templates' values
    (``check_templates``).
    """
    document, data = anatomy.document, anatomy.data
    problems = [*matrix_problems(anatomy, backends)]
    if "entry" in data and not isinstance(data.get("function"), str):
        problems.append(document.diagnostic(("entry",), "entry-without-python", key=True))
    if not anatomy.expectations:
        problems.append(
            document.diagnostic(("steps",) if "steps" in data else (), "expects-nothing", key=True)
        )
    problems += [*requirement_problems(anatomy), *python_problems(anatomy)]
    problems += device_problems(anatomy, backends.of(data["backends"], anatomy.tags))
    return [*problems, *check_values(anatomy, backends, names), *control_problems(anatomy)]


def check_values(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return the problems that may differ from case to case, where templates give lists and
    maps.
    """
    if TARGETS in anatomy.data and not anatomy.functions and TRITON not in anatomy.data:
        return list(
            _problems_of_targets(anatomy)
        )  # without a kernel or a function, the rest is read as a call
    return [
        *_value_problems(anatomy),
        *source_problems(anatomy),
        *_problems_of_targets(anatomy),
        *all_condition_problems(anatomy, backends),
        *function_problems(anatomy),
        *input_problems(anatomy),
        *path_problems(anatomy),
        *value_problems(anatomy),
        *spy_problems(anatomy),
        *step_problems(anatomy, backends),
        *named_value_problems(anatomy, backends),
        *name_problems(anatomy, names),
    ]


class TargetChecks(Protocol):
    """What is asked of the tool ``offline``."""

    def target_problems(self, anatomy: Anatomy) -> Iterator[Diagnostic]:
        """Yield the problems of a spec with targets."""


def _problems_of_targets(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec with targets, and of one that needs some."""
    document, data = anatomy.document, anatomy.data
    if TARGETS in data:
        offline: TargetChecks = hooks("offline")
        yield from offline.target_problems(anatomy)
        return
    for backend in OFFLINE_BACKENDS:
        if backend in data["backends"]:
            path = ("backends", data["backends"].index(backend))
            yield document.diagnostic(
                path, "offline-without-targets", backend=backend, example=EXAMPLE
            )
    if TRITON in data:
        yield document.diagnostic((TRITON,), "triton-without-targets", key=True, example=EXAMPLE)
    if TRITON in data.get("control", {}):
        yield document.diagnostic(("control", TRITON), "control-without-triton", key=True)
    for raw in anatomy.expectations:
        if EXPECTATIONS[raw.kind].needs_target:
            yield document.diagnostic(
                raw.path, "expectation-without-targets", key=True, kind=raw.kind
            )
        elif stage_of(raw) is not None:
            yield document.diagnostic((*raw.path, "stage"), "stage-without-targets", key=True)


def matrix_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of backends, matrix and exclude; without valid ones there are no
    points.
    """
    for index, name in enumerate(anatomy.data["backends"]):
        if name not in backends.names:
            yield anatomy.document.diagnostic(
                ("backends", index), unknown_word("backend", name, backends.names)
            )
    document = anatomy.document
    if not (chosen := backends.of(anatomy.data["backends"], anatomy.tags)):
        return
    axes, wrong = matrix.axes(document)
    yield from wrong
    if (too_many := matrix.size_problem(document, axes, len(chosen))) is not None:
        yield too_many
        return
    excluded = matrix.exclusion_problems(document, axes, chosen)
    yield from excluded
    if not (wrong or excluded) and next(matrix.points(document, axes, chosen), None) is None:
        yield document.diagnostic(("exclude",), "no-cases", key=True)


def clashing_keys(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of keys of which a spec has one; what the others mean is not known."""
    document, data = anatomy.document, anatomy.data
    if "steps" in data and "expect" in data and not data.keys() & {SOURCE, TRITON}:
        yield document.diagnostic(("expect",), "expect-with-steps", key=True)
    if "function" in data and "functions" in data:
        yield document.diagnostic(("functions",), "functions-with-function", key=True)


def _value_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of values with the right type and no meaning, and of services: the runner
    sets their addresses.
    """
    document, data = anatomy.document, anatomy.data
    if data.get("compile", {}).get("mode") is not None and "options" in data["compile"]:
        yield document.diagnostic(("compile", "options"), "options-with-mode", key=True)
    for layer in (*anatomy.defaults, document):
        yield from process_problems(layer, ())
        for place, name in option_names(layer.data.get("env"), ("env",)):
            if "services" in data and name.startswith("TORCHINDUCTOR_REDIS_"):
                yield layer.diagnostic(place, "address-with-services", key=True, name=name)
    if "control" in data:
        yield from process_problems(document, ("control",))
    for expectation in anatomy.expectations if "services" not in data else ():
        if EXPECTATIONS[expectation.kind].needs_service:
            yield document.diagnostic(expectation.path, "no-service", key=True)


def process_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield the problems of ``env`` of a spec or a backend: values that no process accepts, and
    asserts that cannot fail.
    """
    data = document.value(path)
    for place, name in option_names(data.get("env"), (*path, "env")):
        value = document.value(place)
        if isinstance(value, str) and "\0" in value:
            yield document.diagnostic(place, "nul-character", name=name)
        if name == NO_ASSERTS and value is not None:
            yield document.diagnostic(place, "asserts-left-out", key=True, name=name)


def requirement_problems(anatomy: Anatomy, *, filled: bool = False) -> Iterator[Diagnostic]:
    """Yield unknown capabilities and invalid arguments; templates are checked with their values, at
    each point of the matrix.
    """
    problems: list[Diagnostic] = []
    entries = anatomy.data.get("requires", [])
    read_requirements(
        anatomy.document, ("requires",), entries, problems, templated=True, filled=filled
    )
    yield from problems
    for index, entry in enumerate(entries):
        predicate = entry.get("call") if isinstance(entry, dict) else None
        if (
            not isinstance(predicate, str)
            or is_template(predicate)
            or CAPABILITIES["call"].check(predicate)
        ):
            continue
        package = predicate.replace(":", ".").split(".")[0]
        # without the package the case is unavailable
        is_read = python_source.is_installed(package) and package not in required_packages(anatomy)
        if is_read and (problem := python_source.find_name(predicate, set())) is not None:
            yield anatomy.document.diagnostic(("requires", index, "call"), problem)


# -- when ------------------------------------------------------------------------------------------


def all_condition_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions in a spec and its defaults."""
    for document in (*anatomy.defaults, anatomy.document):
        yield from condition_problems(document, (), backends)
    if not (chosen := backends.of(anatomy.data["backends"], anatomy.tags)):
        return
    allowed, of_targets = _known_words(backends), TARGETS in anatomy.data
    for path, when in matrix.find_conditions(anatomy.document):
        for word in when.keys() & {"torch", "python"}:
            with contextlib.suppress(BadRange):
                if not any(map(VersionRange.parse(when[word]).holds, _releases(word))):
                    place = (*path, word)
                    yield anatomy.document.diagnostic(place, "other-releases", word=word)
        words = {word: when[word] for word in allowed if word in when}
        is_known = all(allowed[word].issuperset(as_list(words[word])) for word in words)
        arch = as_list(when.get("arch", ""))[0]
        words.update({word: when[word] for word in when.keys() & {"arch"}})
        if is_known and not any(
            holds(
                words,
                Surroundings(
                    backends=frozenset(backend.names),
                    device=backend.device,
                    vendor=vendor,
                    arch=vendor and arch,
                ),
            )
            for backend in chosen
            for vendor in (VENDORS if of_targets or kind_of(backend.device) != CPU else (None,))
        ):
            names = [f"{backend.name} ({kind_of(backend.device)})" for backend in chosen]
            yield anatomy.document.diagnostic(path, "other-backends", names=one_of(names))


def named_backends(document: Document) -> Iterator[str]:
    """Yield the backends that a spec names: its own, and those of conditions and exclusions."""
    yield from document.data["backends"]
    for below in (
        *(when for _, when in matrix.find_conditions(document)),
        *document.data.get("exclude", []),
    ):
        yield from map(str, as_list(below.get("backend", [])))


def condition_problems(
    document: Document, path: DataPath, backends: Backends
) -> Iterator[Diagnostic]:
    """Yield the problems of conditions below ``path``: invalid ranges and unknown names."""
    allowed = _known_words(backends)
    for place, when in matrix.find_conditions(document, path):
        yield from matrix.selection_problems(document, place, when)
        for word in ("torch", "python"):
            if word in when:
                try:
                    VersionRange.parse(when[word])
                except BadRange as error:
                    yield document.diagnostic((*place, word), "bad-range", message=str(error))
        for word, names in allowed.items():
            for index, name in enumerate(as_list(when.get(word, []))):
                if name not in names:
                    end = (word, index) if isinstance(when[word], list) else (word,)
                    yield document.diagnostic((*place, *end), unknown_word(word, str(name), names))


VENDORS = ("amd", "intel", "nvidia")


def _releases(word: str) -> Iterator[tuple[int, ...]]:
    """Yield the releases that conditions may select: up to the minor after the newest tested
    one.
    """
    *_, newest = committed_tables()
    major, last = (2, int(newest.partition(".")[2]) + 1) if word == "torch" else (3, 15)
    return itertools.product([major], range(last + 1), range(20))


@functools.lru_cache(maxsize=1)
def _known_words(backends: Backends) -> Mapping[str, set[str]]:
    """Return the names that a condition may have, by its word."""
    devices = {kind_of(backend.device) for backend in backends.by_name.values()}
    return {"backend": set(backends.names), "device": devices, "vendor": set(VENDORS)}


# -- source ----------------------------------------------------------------------------------------


_NOT_WITH_SOURCE = tuple(
    "function functions entry inputs steps let spies handlers services covers control".split()
)
"""Keys that a spec with a source cannot have: the source gives functions, inputs and one step."""


def source_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a source."""
    document, data = anatomy.document, anatomy.data
    if SOURCE not in data:
        return
    for key in _NOT_WITH_SOURCE:
        if key in data:
            yield document.diagnostic((key,), "key-with-source", key=True, word=key)
    for key in KEYS_OF_SOURCE:
        if key in data.get("matrix", {}):
            yield document.diagnostic(("matrix", key), "key-of-the-source", key=True, word=key)
    for expectation in anatomy.expectations:
        body = expectation.body
        if not (
            expectation.kind == Close.kind
            and isinstance(body, dict)
            and body.get("to", EAGER) == EAGER
            and body.get("of", OUTPUT) == OUTPUT
        ):
            yield document.diagnostic(
                expectation.path, "expectation-of-samples", key=True, kind=expectation.kind
            )
    from torch_conformance.language.operators import operators_for

    sample_dtypes = {
        dtype
        for operator in operators_for(None)
        for dtypes in operator.dtypes.values()
        for dtype in dtypes
    }
    for index, dtype in enumerate(data[SOURCE]["opinfo"]["dtypes"]):
        path = (SOURCE, "opinfo", "dtypes", index)
        if is_template(dtype):
            yield document.diagnostic(path, "template-in-dtypes")
        elif dtype not in sample_dtypes:
            yield document.diagnostic(
                path, "no-samples-of-dtype", dtype=dtype, dtypes=", ".join(sorted(sample_dtypes))
            )


# -- control and audit -----------------------------------------------------------------------------


def control_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of kinds of a control that the spec does not expect."""
    expected = {expectation.kind for expectation in anatomy.expectations}
    for index, kind in enumerate(anatomy.data.get("control", {}).get("fails", [])):
        path = ("control", "fails", index)
        if kind not in EXPECTATIONS:
            yield anatomy.document.diagnostic(path, unknown_word("expectation", kind, EXPECTATIONS))
        elif kind not in expected:
            yield anatomy.document.diagnostic(
                path, "not-expected", kind=kind, expected=", ".join(sorted(expected))
            )


# -- unused matrix keys ----------------------------------------------------------------------------


_ONLY_TEXT = ("summary", "covers")
"""Sections with no influence on the run and its judgement."""


def unused_key_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of keys that no template, Python or reference uses."""
    # source_problems refuses a key of the source, and a template in the source
    others = {REPEAT, *(KEYS_OF_SOURCE if SOURCE in anatomy.data else ())}
    document = anatomy.document
    keys = [
        key
        for key in anatomy.data.get("matrix", {})
        # a column of a file belongs to its owner
        if key not in others and document.origin(("matrix", key))[0] not in document.rows
    ]
    if not keys or (used := keys_read(anatomy)) is None:
        return
    in_texts: set[str] = set()
    try:
        for path, text in templates.occurrences(anatomy.document):
            (in_texts if path[0] in _ONLY_TEXT else used).update(templates.parse(text).names)
    except templates.TemplateError:
        return  # an invalid template may use every key
    used.update(*matrix.decided_conditions(anatomy.document).values())
    used |= {
        name
        for _, text in templates.templates_below(anatomy.data.get(SOURCE), (SOURCE,))
        for name in _names(text)
    }
    references_found = {str(name) for _, name in references(anatomy.data, ())}
    if PARAMS in references_found:
        return
    used |= {name.split(".")[1] for name in references_found if name.startswith(f"{PARAMS}.")}
    for key in keys:
        if key not in used:
            code = "key-of-texts" if key in in_texts else "unused-key"
            written = (
                template
                for text in (*templates.patterns(anatomy.data), str(anatomy.data["matrix"]))
                for template in re.findall(r"\{\{.+?\}\}", text)
            )
            if any(key in _names(template) for template in written):
                code = "key-of-patterns"
            yield anatomy.document.diagnostic(
                ("matrix", key), code, key=True, word=key, repeat=REPEAT
            )


def _names(text: str) -> frozenset[str]:
    try:
        return frozenset(templates.parse(text).names)
    except templates.TemplateError:
        return frozenset()


# -- covers ----------------------------------------------------------------------------------------


def covers_problems(document: Document, cases: Iterable[Case]) -> Iterator[Diagnostic]:
    """Yield, for each entry of a spec, the problem of the first case in which it names no upstream
    test or instance.
    """
    reported: set[int] = set()
    for case in cases:
        for index, entry in enumerate(case.covers):
            from torch_conformance.language import upstream

            if (
                index not in reported
                and (problem := upstream.load().problem(entry, case.device)) is not None
            ):
                reported.add(index)
                yield document.diagnostic(("covers", index), problem)


# -- templates: syntax, names, allowed places, and whether their values are valid there ------------


_OF_A_BACKEND = frozenset(["backend", "device"])
"""The names, in addition to ``facts``, for templates in files that many specs share."""


def check_templates(
    anatomy: Anatomy, backends: Backends, names: NameTables, earlier: Sequence[Diagnostic]
) -> list[Diagnostic]:
    """Return all problems of a spec's templates and of their values in steps.

    ``earlier`` are the problems without their values.
    """
    document = anatomy.document
    problems = [problem for layer in anatomy.defaults for problem in layer_problems(layer, ())]
    parsed: dict[DataPath, templates.Template] = {}
    axes = {axis.key: axis for axis in matrix.axes(document)[0]}
    own_names = {*_OF_A_BACKEND, *axes}
    for path, template in _parsed_templates(document, problems, ()):
        unknown_names = sorted(template.names - own_names - {templates.DEFERRED_NAME})
        for name in unknown_names:
            problems.append(
                document.diagnostic(path, unknown_word("name", name, own_names, place="a template"))
            )
        problems += [
            document.diagnostic(path, "id-in-template", name=name, id=str(constant))
            for name, constant in templates.comparisons(template)
            if name in axes and axes[name].is_only_id(constant)
        ]
        if template.is_deferred:
            problems.extend(_deferred_problems(document, path))
            if spec_schema.containers_at(document.data, "spec", path):
                problems.append(document.diagnostic(path, "facts-for-a-list"))
        elif not unknown_names:
            parsed[path] = template
    if not parsed or any(matrix_problems(anatomy, backends)):
        return problems
    reported = {*earlier, *problems}
    for point, problem in _point_problems(anatomy, backends, names, parsed):
        if problem not in reported:
            bracket = (
                point.bracket
                if len(point.bracket) <= _LONGEST
                else f"{point.bracket[:_LONGEST]}...]"
            )
            arguments = [
                (name, value.replace(_INERT, "{{") if isinstance(value, str) else value)
                for name, value in problem.arguments
            ]
            problems.append(replace(problem, arguments=(*arguments, ("point", bracket))))
    return problems


_LONGEST = 200


def _parsed_templates(
    document: Document, problems: list[Diagnostic], above: DataPath
) -> Iterator[tuple[DataPath, templates.Template]]:
    for path, text in templates.occurrences(document, above):
        try:
            yield path, templates.parse(text)
        except templates.TemplateError as error:
            problems.append(document.diagnostic(path, error.problem))


def _deferred_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield a problem for a template with facts in a place that is judged, printed or used as a
    seed before the machine is known.
    """
    if (
        path[0] in ("summary", "covers", "requires", "on_request")
        or "expect" in path
        or path[-2:] == ("torch", "seed")
    ):
        yield document.diagnostic(path, "facts-before-the-machine")


# -- files shared by many specs --------------------------------------------------------------------


def layer_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Return the problems of the templates in defaults, or in the backend at ``path``."""
    problems: list[Diagnostic] = []
    for place, template in _parsed_templates(document, problems, path):
        if template.is_deferred:
            problems.extend(_deferred_problems(document, place))
        for name in sorted(template.names - _OF_A_BACKEND - {templates.DEFERRED_NAME}):
            problems.append(document.diagnostic(place, "name-in-a-shared-file", name=name))
    yield from dict.fromkeys(problems)


def check_backends(backends: Backends, names: NameTables) -> Iterator[Diagnostic]:
    """Yield the problems of the options of backends; ``load_backends`` has checked the rest."""
    for backend in (*backends.by_name.values(), *backends.broken):
        document, path = backend.document, (backend.name,)
        yield from layer_problems(document, path)
        yield from condition_problems(document, path, backends)
        yield from process_problems(document, path)
        for section in CONFIG_FILES:
            yield from option_problems(
                document, backend.settings.get(section), (*path, section), section, names
            )


# -- at each point of the matrix -------------------------------------------------------------------


def _point_problems(
    anatomy: Anatomy,
    backends: Backends,
    names: NameTables,
    parsed: Mapping[DataPath, templates.Template],
) -> Iterator[tuple[matrix.Point, Diagnostic]]:
    """Yield the problems of the values of templates.

    A template is checked once for each combination of values of its names.
    """
    document = anatomy.document
    structural = {
        path
        for path in parsed
        if path[-1] in _OF_STRUCTURE or spec_schema.containers_at(document.data, "spec", path)
    }
    affects_steps = bool(structural) or any(
        path[0] in ("steps", "expect", TRITON) or path[-1] == "ref" for path in parsed
    )
    seen: set[tuple[DataPath, str]] = set()
    misformed: set[tuple[DataPath, str]] = set()
    """Values that do not fit the schema: the other checks do not see them, at any point."""
    for point in _points_of(anatomy, backends):
        values: dict[DataPath, str] = {}
        for path, template in parsed.items():  # which device is one depends on the backend too
            names_used = sorted(
                {*template.names, "backend"} if path[-1] == "device" else template.names
            )
            values[path] = repr([point.names.get(name) for name in names_used])
        fresh = [path for path in values if (path, values[path]) not in seen]
        if not fresh:
            continue
        seen.update(values.items())
        data = document.data
        problems: list[Diagnostic] = []
        for path in parsed if affects_steps else fresh:
            try:
                data = templates.replaced(data, path, _inert(parsed[path].evaluate(point.names)))
            except templates.TemplateError as error:
                problems.append(document.diagnostic(path, error.problem))
        filled = with_data(anatomy, data)
        if not problems:
            for path in fresh:
                if wrong := spec_schema.describe(data, "spec", path):
                    misformed.add((path, values[path]))
                    problems.extend(spec_schema.diagnostics(document, wrong))
        if not misformed.isdisjoint(values.items()):
            yield from ((point, problem) for problem in problems)
            continue
        if not problems:
            problems.extend(process_problems(filled.document, ()))
            if any(path[0] == "requires" for path in fresh):
                problems.extend(requirement_problems(filled, filled=True))
            if among := [path for path in fresh if path[-1] == "device" or path in structural]:
                problems.extend(device_problems(filled, (point.backend,), among))
        if not problems and not structural.isdisjoint(fresh):
            problems.extend(check_values(filled, backends, names))
        elif not problems and affects_steps:
            problems.extend(named_value_problems(filled, backends))
            problems.extend(_fresh_expectation_problems(filled, seen))
        yield from ((point, problem) for problem in problems)


def _points_of(anatomy: Anatomy, backends: Backends) -> Iterator[matrix.Point]:
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    return matrix.points(anatomy.document, matrix.axes(anatomy.document)[0], chosen)


def _fresh_expectation_problems(
    filled: Anatomy, seen: set[tuple[DataPath, str]]
) -> Iterator[Diagnostic]:
    """Yield the problems of the expectations of a point that no earlier point has; they are added
    to ``seen``.
    """
    for expectation in filled.expectations:
        key = (expectation.path, repr(expectation.body))
        # a template with a problem is not evaluated
        if key not in seen and not is_templated(expectation):
            seen.add(key)
            yield from expectation_problems(filled.document, expectation)


# -- templates in the place of a list or a map: inputs: "{{ row.inputs }}" -------------------------


_OF_STRUCTURE = ("repeat", "type")
"""Keys with scalar values on which checks of a whole step or a whole list depend."""

_INERT = "{\N{WORD JOINER}{"


def _inert(value: object) -> object:
    """Return a value in which nothing looks like a template: text that a template gave is text,
    also to the schema.
    """
    return mapped(value, lambda leaf: leaf.replace("{{", _INERT) if isinstance(leaf, str) else leaf)


def as_first_case(anatomy: Anatomy, backends: Backends) -> Anatomy | None:
    """Return a spec with the templates for lists and maps evaluated for its first case; None where
    one has no such value.

    The check of all cases finds out why.
    """
    document = anatomy.document
    places = [
        (path, text)
        for path, text in templates.occurrences(document)
        if spec_schema.containers_at(document.data, "spec", path)
    ]
    if not places:
        return anatomy
    names: dict[str, object] = {}
    if not any(matrix_problems(anatomy, backends)):
        names = dict(next(_points_of(anatomy, backends)).names)
    data = anatomy.data
    for path, text in places:
        try:
            value = _inert(templates.parse(text).evaluate(names))
        except templates.TemplateError:
            return None
        data = templates.replaced(data, path, value)
        if is_template(value) or spec_schema.describe(data, "spec", path):
            return None
    return with_data(anatomy, data)
