"""Rules of specs that no usual run selects."""

import re
from collections.abc import Iterator

from runner.core.diagnostics import InvalidSpecs
from runner.core.globs import glob
from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.profiles import Entry
from runner.language.read.source import read_bytes


def unrequested_spec(scene: Scene) -> Iterator[Finding]:
    """Yield specs on request of which no profile names a case, and for which no README of their folder has a command."""
    if not scene.whole:
        return
    entries = [entry for profile in scene.profiles for level in profile.levels for entry in (*level.required, *level.optional)]
    for spec in scene.specs:
        if spec.anatomy.data.get("on_request") is True and not (_is_documented(spec) or any(_names(entry, spec) for entry in entries)):
            place = spec.document.position(("on_request",), key=True)
            message = "the spec runs on request only, and neither a profile nor the README of its folder says when"
            hint = "add an entry to a profile of specs/profiles, or name its tag in the README: run --tag NAME"
            yield Finding(rule="unrequested-spec", position=place, message=message, hint=hint)


def _is_documented(spec: Spec) -> bool:
    """Whether the README beside a spec says by which tag or folder it is run."""
    path = spec.document.path.parent / "README.md"
    try:
        text = read_bytes(path, article="a README").decode("utf-8", "replace")
    except InvalidSpecs:
        return False  # there is none
    tags = {word.rstrip("`.,:;)") for word in re.findall(r"--tag\s+(\S+)", text)}
    return (
        not tags.isdisjoint(spec.anatomy.tags) or re.search(rf"run specs/{re.escape(spec.anatomy.spec.area)}(?![\w/-])", text) is not None
    )


def _names(entry: Entry, spec: Spec) -> bool:
    if entry.tags and set(entry.tags).isdisjoint(spec.anatomy.tags):
        return False
    if not entry.tags and all(pattern.strip("*") == "" for pattern in entry.cases):
        return False  # every case, without those on request
    globs = [glob(pattern) for pattern in entry.cases]
    cases = [case for case in spec.cases if not entry.backends or case.backend in entry.backends]
    left_out = [glob(pattern) for pattern in entry.left_out]
    cases = [case for case in cases if not any(one.fullmatch(case.id) for one in left_out)]
    return bool(cases) and (not globs or any(one.fullmatch(case.id) for one in globs for case in cases))


RULES = (
    Rule(
        id="unrequested-spec",
        summary="A spec with `on_request: true` that no shipped profile names, and no README of its folder says how to run",
        why="`run` leaves it out, and so does every profile: it is run when somebody thinks of it. A README beside it that has `--tag TAG` "
        "or `run specs/AREA` says who does. Only the shipped specs are compared with the shipped profiles.",
        bad="# a shipped spec\non_request: true   # and no profile names the spec, nor README.md a command",
        good="# specs/profiles/operators-core.yaml\nrequired: [{cases: 'operators/opinfo-functions[*'}]",
        check=unrequested_spec,
    ),
)
