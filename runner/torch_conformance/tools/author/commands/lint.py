"""``lint``: print what is valid in specs, but unsound: a table of rules, none of which executes
anything.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from torch_conformance.language.backends import Backends
from torch_conformance.language.load import inspect
from torch_conformance.language.read import matrix
from torch_conformance.language.read.anatomy import SOURCE, Anatomy, RawExpectation
from torch_conformance.language.torch_names import committed_tables
from torch_conformance.machine import output
from torch_conformance.model import devices
from torch_conformance.model.case import Case
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
from torch_conformance.model.escaping import counted
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.targets import STAGES_OF_VENDOR, TARGETS, WRAPPER
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import SpecFiles, flag, several
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.close import Close, Judge
from torch_conformance.vocabulary.expectations.comparing import DEFAULTS, default_tolerance

Problem: TypeAlias = tuple[Position, str, str]
"""What a rule finds: its place, a message, a hint."""


@frozen
class Spec:
    """A spec with its cases."""

    anatomy: Anatomy
    cases: Sequence[Case]
    backends: Backends

    @property
    def document(self) -> Document:
        """The file of the spec, without the files that it inherits from."""
        return self.anatomy.document


# -- points without a case -------------------------------------------------------------------------


def unreachable_point(spec: Spec) -> Iterator[Problem]:
    """Yield values of the matrix and backends that no case has; none of a spec whose cases come
    from a table of operators, which decides the points.
    """
    if SOURCE in spec.anatomy.data:
        return
    document, hint = spec.document, "remove it, or exclude less"
    backends = {case.backend for case in spec.cases}
    for index, name in enumerate(document.data["backends"]):
        if name not in backends:
            message = f"every point of the backend '{name}' is excluded"
            yield document.position(("backends", index)), message, hint
    axes, _ = matrix.axes(document)
    for axis in axes:
        values = {repr(case.params.get(axis.key)) for case in spec.cases}
        is_in_matrix = axis.key in document.data.get("matrix", {})
        for index, (value, label) in enumerate(zip(axis.values, axis.labels, strict=True)):
            if repr(value) not in values:
                path = ("matrix", axis.key, index) if is_in_matrix else (axis.key,)
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


def loose_tolerance(spec: Spec) -> Iterator[Problem]:
    """Yield tolerances far above the default of every dtype of the case, of which neither a covered
    test nor a comment says why.
    """
    loose: dict[Position, tuple[float, tuple[str, ...]]] = {}
    for case in spec.cases:
        for expected in (claim for step in case.steps for claim in step.expectations):
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
            if times > max(OVER_DEFAULT, loose.get(expected.position, (0.0,))[0]):
                loose[expected.position] = times, dtypes
    # a test of PyTorch that the spec restates gives the tolerance
    if not loose or spec.anatomy.data.get("covers"):
        return
    rows = spec.document.content.decode("utf-8", "replace").split("\n")
    if any(re.search(r"(?:^|\s)#.*restates ", row) for row in rows):
        return
    hint = (
        "remove atol and rtol, so that errors are compared with those of eager; or say the "
        "reason in a comment"
    )
    for position, (times, dtypes) in loose.items():
        above, row = rows[max(0, position.line - 2)], rows[position.line - 1]
        if not above.lstrip().startswith("#") and not re.search(r"\s#", row):
            message = (
                f"the tolerance is {times:.0f} times the default of {' and '.join(dtypes)}, "
                "and nothing says why"
            )
            yield position, message, hint


def _dtypes(case: Case) -> tuple[str, ...]:
    """Return the floating dtypes that a case names anywhere; float32 where an input names none."""
    body = case.body
    texts = [str(part) for part in (body.inputs, body.let, dict(case.params), body.context)]
    texts += [block.text for block in body.blocks]
    words = {_OTHER.get(word, word) for text in texts for word in _DTYPE.findall(text)}
    dtypes = words & set(DEFAULTS)
    if not dtypes or any(isinstance(entry, dict) and "dtype" not in entry for entry in body.inputs):
        dtypes.add("float32")
    return tuple(sorted(dtypes))


# -- conditions: what only a machine knows counts as possible --------------------------------------

_ARCHS = {"nvidia": ("sm_",), "amd": ("gfx",)}
"""How the architectures of a vendor begin."""


def may_hold(when: Mapping[str, Any] | None, case: Case, spec: Spec) -> bool:
    """Whether a condition may hold for a case on some machine, with a torch that the runner has
    names of.
    """
    vendors = _vendors(case)
    for word, required in (when or {}).items():
        values = as_list(required)
        match word:
            case "device":
                may = devices.kind_of(case.device) in values
            case "backend":
                may = bool(spec.backends.by_name[case.backend].names & set(values))
            case "vendor":
                may = vendors is None or not vendors.isdisjoint(values)
            case "arch" if case.target:
                may = any(TARGETS[case.target].arch.startswith(str(arch)) for arch in values)
            case "arch" if vendors is not None:
                begins = tuple(begin for vendor in vendors for begin in _ARCHS.get(vendor, ("",)))
                may = bool(begins) and any(str(arch).startswith(begins) for arch in values)
            case "matrix":
                may = matrix.fulfils(spec.document, required, case.params)
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
    """Return the vendors that a case's device may be of; None where any is possible."""
    if case.target:
        return frozenset({TARGETS[case.target].vendor})
    if not devices.is_accelerator(case.device):
        return frozenset()
    capabilities = {need.name for need in case.requires}
    return (
        frozenset(build.vendor for build in devices.builds() if build.capability in capabilities)
        or None
    )


def unjudged_expectation(spec: Spec) -> Iterator[Problem]:
    """Yield expectations that no case judges, values under conditions that no case chooses, and
    cases without an expectation.
    """
    if SOURCE in spec.anatomy.data or not spec.cases:
        return
    document = spec.document
    judged_ids: set[str] = set()
    for step in spec.anatomy.steps:
        running = [case for case in spec.cases if may_hold(step.when, case, spec)]
        for raw in step.expectations:
            judging = [case for case in running if _judges(raw, case, spec)]
            judged_ids |= {case.id for case in judging}
            if not judging:
                names = ", ".join(dict.fromkeys(case.backend for case in spec.cases))
                message = f"no case judges this {raw.kind}: it never applies to {names}"
                hint = "correct its condition, or remove it"
                yield document.position(raw.path, key=True), message, hint
                continue
            for path, entry in _conditional(raw.body, raw.path):
                when = entry.get("when")
                if not any(may_hold(when, case, spec) for case in judging):
                    message = "no case of the spec fulfils the condition of this value"
                    hint = "correct the condition, or remove the value"
                    yield document.position(path), message, hint
    silent = [case.id for case in spec.cases if case.id not in judged_ids]
    if silent and judged_ids:
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        hint = "such a case is an ERROR when it is run: add an expectation, or exclude it"
        yield document.position(()), f"no expectation applies to {silent[0]}{more}", hint


def _judges(raw: RawExpectation, case: Case, spec: Spec) -> bool:
    body = raw.body if isinstance(raw.body, dict) else {}
    when = body.get("when")
    if not may_hold(when if isinstance(when, dict) else None, case, spec):
        return False
    compiles = case.target or spec.backends.by_name[case.backend].compiles
    if EXPECTATIONS[raw.kind].is_of_compiles and not compiles:
        return False
    stage = body.get("stage")
    if not isinstance(stage, str) or not case.target or stage == WRAPPER:
        return True
    return any(stage in STAGES_OF_VENDOR.get(vendor, ()) for vendor in _vendors(case) or ())


def _conditional(value: object, path: DataPath) -> Iterator[tuple[DataPath, dict[str, Any]]]:
    """Yield each value under a condition, with its path."""
    if isinstance(value, list) and is_conditional(value):
        yield from (((*path, index), entry) for index, entry in enumerate(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _conditional(item, (*path, key))


RULES: Mapping[str, Callable[[Spec], Iterator[Problem]]] = {
    "unreachable-point": unreachable_point,
    "loose-tolerance": loose_tolerance,
    "unjudged-expectation": unjudged_expectation,
}
"""Every rule, by id, in the order of the reference, which says why what it finds is unsound."""

# -- the command -----------------------------------------------------------------------------------


@frozen
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
    suite, cases = inspection.suite, defaultdict[str, list[Case]](list)
    for case in suite.cases:
        cases[case.spec].append(case)
    findings = [
        Finding(position=position, rule=name, message=message, hint=hint)
        for anatomy in inspection.anatomies
        for name, check in RULES.items()
        if name in (options.select or RULES) and name not in options.ignore
        for position, message, hint in check(
            Spec(anatomy=anatomy, cases=cases[anatomy.document.file], backends=suite.backends)
        )
    ]
    return sorted(findings), len(inspection.anatomies)


def main(options: LintOptions) -> ExitCode:
    """Print a line for each finding, then a count; exit 1 when there is one."""
    findings, specs = lint(options)
    if options.json:
        documents = [
            {
                "rule": finding.rule,
                **asdict(finding.position),
                "message": finding.message,
                "hint": finding.hint,
            }
            for finding in findings
        ]
        output.document({"format": 1, "specs": specs, "findings": documents})
    else:
        lines = (
            f"{finding.position}: {finding.rule}: {finding.message} ({finding.hint})"
            for finding in findings
        )
        output.lines(map(one_line, lines))
        summary = counted(len(findings), "finding") if findings else "no findings"
        output.line(f"{counted(specs, 'spec')}, {summary}")
    return ExitCode.FAILED if findings else ExitCode.OK
