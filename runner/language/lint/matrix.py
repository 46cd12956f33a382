"""Rules of the matrix and its exclusions."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from runner.core.case import Case
from runner.core.conditions import BadRange, VersionRange
from runner.language.lint.base import Finding, Fix, Rule, Scene, Spec
from runner.language.read import matrix
from runner.language.read.anatomy import SOURCE
from runner.language.read.document import DataPath


def unreachable_point(scene: Scene) -> Iterator[Finding]:
    """Yield values of the matrix and backends that no case has, and cases whose required versions exclude each other."""
    for spec in scene.specs:
        if SOURCE in spec.anatomy.data:
            continue  # its cases come from a table
        yield from _without_case(spec)
        for case in spec.cases:
            if (name := _impossible(case)) is not None:
                message = f"no version of {name} fulfils all that {case.id} requires"
                place = spec.document.position(("requires",), key=True)
                yield Finding(rule="unreachable-point", position=place, message=message, hint="correct the ranges, or exclude the point")
                break


def _without_case(spec: Spec) -> Iterator[Finding]:
    document = spec.document
    hint = "remove it, or exclude less"
    backends = {case.backend for case in spec.cases}
    for index, name in enumerate(document.data["backends"]):
        if name not in backends:
            message = f"every point of the backend '{name}' is excluded"
            yield Finding(rule="unreachable-point", position=document.position(("backends", index)), message=message, hint=hint)
    axes, _ = matrix.axes(document)
    for axis in axes:
        for index, (value, label) in enumerate(zip(axis.values, axis.labels, strict=True)):
            if not any(_is(case.params.get(axis.key), value) for case in spec.cases):
                place = document.position(("matrix", axis.key, index) if axis.key in document.data.get("matrix", {}) else (axis.key,))
                message = f"every point with {axis.key} = {label} is excluded"
                yield Finding(rule="unreachable-point", position=place, message=message, hint=hint)


def _is(one: object, other: object) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


_RELEASES = tuple((2, minor, patch) for minor, patch in product(range(30), range(6)))
_PYTHONS = tuple((3, minor, patch) for minor, patch in product(range(8, 25), range(20)))


def _impossible(case: Case) -> str | None:
    """Return what of which no version fulfils all ranges of a case; None for most cases."""
    for name, releases in (("torch", _RELEASES), ("python", _PYTHONS)):
        texts = [str(one.argument) for one in case.requires if one.name == name and one.argument]
        if len(texts) < 2 and not any("," in text for text in texts):
            continue
        try:
            ranges = [VersionRange.parse(text) for text in texts]
        except BadRange:
            continue
        if not any(all(one.holds(release) for one in ranges) for release in releases):
            return name
    return None


def redundant_exclusion(scene: Scene) -> Iterator[Finding]:
    """Yield each entry of ``exclude`` that leaves out only what others leave out."""
    for spec in scene.specs:
        entries = spec.anatomy.data.get("exclude", [])
        if not entries or SOURCE in spec.anatomy.data:
            continue
        gone: set[int] = set()
        for index in reversed(range(len(entries))):
            others = [entry for at, entry in enumerate(entries) if at != index and at not in gone]
            if _points(scene, spec, others) == _points(scene, spec, entries):
                gone.add(index)
                path: DataPath = ("exclude", index) if len(gone) < len(entries) else ("exclude",)
                fix = Fix(document=spec.document, removed=path)
                message = "the other exclusions leave out every point of this one"
                place = spec.document.position(("exclude", index))
                yield Finding(rule="redundant-exclusion", position=place, message=message, hint="remove it", fix=fix)


def _points(scene: Scene, spec: Spec, exclusions: list[object]) -> list[str]:
    axes, _ = matrix.axes(spec.document)
    document = replace(spec.document, data={**spec.document.data, "exclude": exclusions})
    return [point.bracket for point in matrix.points(document, axes, scene.backends.of(document.data["backends"], spec.anatomy.tags))]


RULES = (
    Rule(
        id="unreachable-point",
        summary="A value of the matrix or a backend has no case, or a case requires versions that exclude each other",
        why="The spec seems to claim something of it, and nothing is ever run.",
        bad="matrix: {dtype: [float16, float32]}\nexclude: [{dtype: float16, reason: no float16 convolution on CPU}]",
        good="matrix: {dtype: [float32]}",
        check=unreachable_point,
    ),
    Rule(
        id="redundant-exclusion",
        summary="An entry of `exclude` leaves out only points that other entries leave out",
        why="Today it excludes nothing. If the other entry is removed, it excludes cases without notice.",
        bad="backends: [cpu, cuda]\nmatrix: {dtype: [float16, float32]}\n"
        "exclude:\n  - {backend: cpu, reason: no kernel}\n  - {backend: cpu, dtype: float16, reason: slow}",
        good="backends: [cpu, cuda]\nmatrix: {dtype: [float16, float32]}\nexclude: [{backend: cpu, reason: no kernel}]",
        check=redundant_exclusion,
        fixes="removes the entry",
    ),
)
