"""``lint``: print what is valid in specs, but unsound: a table of rules, none of which executes
anything.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from torch_conformance.language.backends import Backends
from torch_conformance.language.load import inspect
from torch_conformance.language.read import matrix, python_source
from torch_conformance.language.read.anatomy import SOURCE, Anatomy, RawExpectation
from torch_conformance.language.read.python_source import binds_dynamically
from torch_conformance.language.torch_names import committed_tables
from torch_conformance.machine import output
from torch_conformance.model import devices
from torch_conformance.model.case import Case, Expected
from torch_conformance.model.conditions import VersionRange, as_list, is_conditional
from torch_conformance.model.diagnostics import (
    InvalidSpecs,
    Position,
    UsageError,
    errors,
    one_line,
    unknown,
)
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.targets import STAGES_OF_VENDOR, TARGETS, WRAPPER
from torch_conformance.optional.options import SpecFiles, flag, several
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.close import Close, Judge
from torch_conformance.vocabulary.expectations.comparing import DEFAULTS, default_tolerance

Problem: TypeAlias = tuple[Position, str, str]
"""What a rule finds: its place, a message, a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A spec with its cases."""

    anatomy: Anatomy
    cases: tuple[Case, ...]

    @property
    def document(self) -> Document:
        """Its own file."""
        return self.anatomy.document


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is linted."""

    specs: tuple[Spec, ...]
    backends: Backends


# -- points without a case -------------------------------------------------------------------------


def unreachable_point(scene: Scene) -> Iterator[Problem]:
    """Yield values of the matrix and backends that no case has; where the cases come from a table,
    it is not known which.
    """
    hint = "remove it, or exclude less"
    for spec in scene.specs:
        if SOURCE in spec.anatomy.data:
            continue
        document = spec.document
        backends = {case.backend for case in spec.cases}
        for index, name in enumerate(document.data["backends"]):
            if name not in backends:
                message = f"every point of the backend '{name}' is excluded"
                yield document.position(("backends", index)), message, hint
        axes, _ = matrix.axes(document)
        for axis in axes:
            values = {repr(case.params.get(axis.key)) for case in spec.cases}
            for index, (value, label) in enumerate(zip(axis.values, axis.labels, strict=True)):
                if repr(value) not in values:
                    path = (
                        ("matrix", axis.key, index)
                        if axis.key in document.data.get("matrix", {})
                        else (axis.key,)
                    )
                    message = f"every point with {axis.key} = {label} is excluded"
                    yield document.position(path), message, hint


# -- loose tolerances ------------------------------------------------------------------------------

OVER_DEFAULT = 1000
"""How many times the default of its dtypes a tolerance may be without a reason: 1e-3 for float32 is
usual in PyTorch's tests.
"""

_DTYPE = re.compile(
    r"(?<![a-z0-9])(b?float(?:16|32|64)|complex(?:64|128)|half|double)(?![a-z0-9_])"
)
_OTHER = {"half": "float16", "double": "float64"}


def loose_tolerance(scene: Scene) -> Iterator[Problem]:
    """Yield tolerances far above the default of every dtype of the case, of which neither a covered
    test nor a comment says why.
    """
    for spec in scene.specs:
        loose: dict[tuple[int, int], tuple[Expected, float, tuple[str, ...]]] = {}
        for case, expected in (
            (owner, claim)
            for owner in spec.cases
            for step in owner.steps
            for claim in step.expectations
        ):
            check = expected.check
            if (
                not isinstance(check, Close)
                or check.judge_kind is not Judge.TOLERANCE
                or check.atol is None
                or check.rtol is None
            ):
                continue
            dtypes = _dtypes(case)
            rtol, atol = default_tolerance(*dtypes)
            times = max(check.rtol / rtol, check.atol / atol) if rtol and atol else 0.0
            place = (expected.position.line, expected.position.column)
            if times > OVER_DEFAULT and times > loose.get(place, (None, 0.0))[1]:
                loose[place] = (expected, times, dtypes)
        # a test of PyTorch that the spec restates gives the tolerance
        if not loose or spec.anatomy.data.get("covers"):
            continue
        rows = spec.document.content.decode("utf-8", "replace").split("\n")
        if any(re.search(r"(?:^|\s)#.*restates ", row) for row in rows):
            continue
        for expected, times, dtypes in loose.values():
            above, own = rows[max(0, expected.position.line - 2)], rows[expected.position.line - 1]
            if not above.lstrip().startswith("#") and not re.search(r"\s#", own):
                message = (
                    f"the tolerance is {times:.0f} times the default of {' and '.join(dtypes)}, "
                    "and nothing says why"
                )
                hint = (
                    "remove atol and rtol, so that errors are compared with eager's own; or say "
                    "the reason in a comment"
                )
                yield expected.position, message, hint


def _dtypes(case: Case) -> tuple[str, ...]:
    """Return the floating dtypes that a case names anywhere; float32 where an input names none."""
    texts = [
        str(case.body.inputs),
        str(case.body.let),
        str(dict(case.params)),
        str(case.body.context),
    ]
    texts += [block.text for block in case.body.blocks]
    named = {_OTHER.get(word, word) for text in texts for word in _DTYPE.findall(text)} & set(
        DEFAULTS
    )
    if not named or any(
        isinstance(entry, dict) and "dtype" not in entry for entry in case.body.inputs
    ):
        named.add("float32")
    return tuple(sorted(named))


# -- unused names ----------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def unused_prelude_name(scene: Scene) -> Iterator[Problem]:
    """Yield functions, classes and constants of a spec's own prelude that nothing in the spec
    uses.
    """
    for document, anatomy in ((spec.document, spec.anatomy) for spec in scene.specs):
        file = str(document.path.absolute())
        tree = anatomy.prelude_trees.get(file)
        if tree is None or binds_dynamically(tree):
            continue
        read = [dict(inherited.data) for inherited in anatomy.defaults]
        read.append({key: value for key, value in document.data.items() if key != "prelude"})
        unread = ("summary", "covers", "tags")
        text = json.dumps(
            [
                value
                for data in read
                for pair in data.items()
                if pair[0] not in unread
                for value in pair
            ],
            ensure_ascii=False,
        )
        words = set(_WORD.findall(re.sub(r"\\.", " ", text)))
        for statement in tree.body:
            # what the prelude itself uses, each outside of its own definition, and the words of its
            # texts
            for node in ast.walk(statement):
                if (
                    isinstance(node, ast.Name)
                    and isinstance(node.ctx, ast.Load)
                    and node.id != getattr(statement, "name", None)
                ):
                    words.add(node.id)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.update(_WORD.findall(node.value))
        block = next(block for block in anatomy.preludes if block.file == file)
        for name, line in _definitions(tree):
            if name not in words:
                place = python_source.place(document, ("prelude",), block, line, 1)
                yield (
                    place,
                    f"nothing in the spec uses '{name}'",
                    "remove it, or name it where it is meant",
                )


def _definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a prelude defines at its top with their lines; those with a decorator
    may be used by it.
    """
    for statement in tree.body:
        match statement:
            case (
                ast.FunctionDef(name=name, decorator_list=[])
                | ast.ClassDef(name=name, decorator_list=[], keywords=[])
            ):
                yield name, statement.lineno
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("__"):
                yield name, statement.lineno
            case ast.ImportFrom(names=aliases):
                yield from (
                    (alias.asname or alias.name, statement.lineno)
                    for alias in aliases
                    if alias.name != "*"
                )


# -- conditions: what only a machine knows counts as possible --------------------------------------

_ARCHS = {"nvidia": ("sm_",), "amd": ("gfx",)}
"""How the architectures of a vendor begin."""


def may_hold(
    when: Mapping[str, Any] | None, case: Case, backends: Backends, document: Document
) -> bool:
    """Whether a condition may hold for a case on some machine with a torch that the runner
    knows.
    """
    vendors = _vendors(case)
    for word, required in (when or {}).items():
        values = as_list(required)
        match word:
            case "device":
                may = devices.kind_of(case.device) in values
            case "backend":
                may = bool(backends.by_name[case.backend].names & set(values))
            case "vendor":
                may = vendors is None or not vendors.isdisjoint(values)
            case "arch" if case.target:
                may = any(TARGETS[case.target].arch.startswith(str(arch)) for arch in values)
            case "arch" if vendors is not None:
                begins = tuple(begin for vendor in vendors for begin in _ARCHS.get(vendor, ("",)))
                may = bool(begins) and any(str(arch).startswith(begins) for arch in values)
            case "matrix":
                may = matrix.fulfils(document, required, case.params)
            case "torch":
                minors = [tuple(map(int, minor.split("."))) for minor in committed_tables()]
                may = any(
                    VersionRange.parse(str(required)).holds((*minor, patch))
                    for minor in minors
                    for patch in (0, 9)
                )
            case _:
                may = True
        if not may:
            return False
    return True


def _vendors(case: Case) -> frozenset[str] | None:
    """Return the vendors of which a case's device can be; None where they are not known."""
    if case.target:
        return frozenset({TARGETS[case.target].vendor})
    if not devices.is_accelerator(case.device):
        return frozenset()
    named = {need.name for need in case.requires}
    own = {build.vendor for build in devices.builds() if build.capability in named}
    return frozenset(own) or None


def unjudged_expectation(scene: Scene) -> Iterator[Problem]:
    """Yield expectations that no case judges, values under conditions that no case chooses, and
    cases without an expectation.
    """
    backends = scene.backends
    for spec in scene.specs:
        if SOURCE in spec.anatomy.data or not spec.cases:
            continue
        document = spec.document
        judged: set[str] = set()
        for step in spec.anatomy.steps:
            own = [case for case in spec.cases if may_hold(step.when, case, backends, document)]
            for raw in step.expectations:
                judging = [case for case in own if _judges(raw, case, backends, document)]
                judged |= {str(case.id) for case in judging}
                if not judging:
                    names = ", ".join(dict.fromkeys(case.backend for case in spec.cases))
                    message, hint = (
                        f"no case judges this {raw.kind}: it never applies to {names}",
                        "correct its condition, or remove it",
                    )
                    yield document.position(raw.path, key=True), message, hint
                for path, entry in _conditional(raw.body, raw.path) if judging else ():
                    if not any(
                        may_hold(entry.get("when"), case, backends, document) for case in judging
                    ):
                        message = "no case of the spec fulfils the condition of this value"
                        yield (
                            document.position(path),
                            message,
                            "correct the condition, or remove the value",
                        )
        silent = [case for case in spec.cases if str(case.id) not in judged]
        if silent and judged:
            message = f"no expectation applies to {silent[0].id}" + (
                f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            )
            hint = "such a case is an ERROR when it is run: add an expectation, or exclude it"
            yield document.position(()), message, hint


def _judges(raw: RawExpectation, case: Case, backends: Backends, document: Document) -> bool:
    body = raw.body if isinstance(raw.body, dict) else {}
    when = body.get("when")
    if not may_hold(when if isinstance(when, dict) else None, case, backends, document):
        return False
    compiles = case.target or backends.by_name[case.backend].compiles
    if EXPECTATIONS[raw.kind].is_of_compiles and not compiles:
        return False
    stages = {
        stage for vendor in (_vendors(case) or ()) for stage in STAGES_OF_VENDOR.get(vendor, ())
    }
    stage = body.get("stage")
    return not isinstance(stage, str) or not case.target or stage == WRAPPER or stage in stages


def _conditional(value: object, path: DataPath) -> Iterator[tuple[DataPath, dict[str, Any]]]:
    """Yield each value under a condition, with its path."""
    if isinstance(value, list) and is_conditional(value):
        yield from (((*path, index), entry) for index, entry in enumerate(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _conditional(item, (*path, key))


RULES: Mapping[str, Callable[[Scene], Iterable[Problem]]] = {
    "unreachable-point": unreachable_point,
    "loose-tolerance": loose_tolerance,
    "unused-prelude-name": unused_prelude_name,
    "unjudged-expectation": unjudged_expectation,
}
"""Every rule, by id, in the order of the reference, which says why what it finds is unsound."""

# -- the command -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions(SpecFiles):
    """The options of ``lint``."""

    select: tuple[str, ...] = several("RULE", "apply only this rule")
    ignore: tuple[str, ...] = several("RULE", "do not apply this rule")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """What a rule says of one place. Ordered by place, then by rule."""

    position: Position
    rule: str
    message: str
    hint: str


def lint(options: LintOptions) -> tuple[list[Finding], int]:
    """Return the findings, and the number of specs. Raise ``InvalidSpecs`` or ``UsageError``."""
    for name in (*options.select, *options.ignore):
        if name not in RULES:
            message, hint = unknown("rule", one_line(name), RULES)
            raise UsageError(f"{message} ({hint})")
    inspection = inspect(options.paths, options.backends)
    if wrong := errors(inspection.problems):
        raise InvalidSpecs(wrong)
    suite, cases = inspection.suite, dict[str, list[Case]]()
    for case in suite.cases:
        cases.setdefault(case.spec, []).append(case)
    specs = tuple(
        Spec(anatomy=anatomy, cases=tuple(cases.get(anatomy.document.file, ())))
        for anatomy in inspection.anatomies
    )
    scene = Scene(specs=specs, backends=suite.backends)
    findings = [
        Finding(position=position, rule=name, message=message, hint=hint)
        for name, check in RULES.items()
        if (not options.select or name in options.select) and name not in options.ignore
        for position, message, hint in check(scene)
    ]
    return sorted(findings), len(specs)


def main(options: LintOptions) -> ExitCode:
    """Print a line for each finding, then a count; exit 1 when there is one."""
    findings, specs = lint(options)
    if options.json:
        shown = [
            {
                "rule": finding.rule,
                **asdict(finding.position),
                "message": finding.message,
                "hint": finding.hint,
            }
            for finding in findings
        ]
        output.document({"format": 1, "specs": specs, "findings": shown})
    else:
        lines = (
            f"{finding.position}: {finding.rule}: {finding.message} ({finding.hint})"
            for finding in findings
        )
        output.lines(map(one_line, lines))
        count = len(findings)
        output.line(
            f"{specs} spec{'' if specs == 1 else 's'}, {count or 'no'} "
            f"finding{'' if count == 1 else 's'}"
        )
    return ExitCode.FAILED if findings else ExitCode.OK
