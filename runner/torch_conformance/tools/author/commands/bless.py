"""``bless``: from recorded runs to changed specs, printed or applied, and the reasons for every red
case that is not blessed.

Only the characters of a changed value are replaced in a file, so comments, order and form stay as
they are. A changed text is parsed again and compared with the data that the change should give, so
that no text of a run can add a key, end a value or become a comment. ``docs/design/judging.md``
says why no library writes the files.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from torch_conformance.language.load import Suite, inspect_specs, load_specs, surroundings_of
from torch_conformance.language.read.document import SPEC
from torch_conformance.language.read.templates import replaced
from torch_conformance.language.read.yaml_source import parse
from torch_conformance.machine import output
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError, one_line
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.escaping import counted
from torch_conformance.model.flow import flow
from torch_conformance.model.outcomes import PASSED, ExitCode
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import Selection, argument, backend_files, flag
from torch_conformance.plan.selection import select, without_benches
from torch_conformance.record.case_files import RecordedFiles
from torch_conformance.report import replace
from torch_conformance.run import rejudge
from torch_conformance.run.rejudge import specs_of
from torch_conformance.tools.author.blessed_counts import (
    Change,
    NotBlessed,
    Sample,
    SpecFacts,
    propose,
    read_samples,
)

_TABS = re.compile(r"(?<=[^ \t\n\r])[ \t]*\t[ \t]*")
"""White space with a tab after other text of a line; at the beginning of a line it may be the
indentation of a text.
"""


def _edit(document: Document, path: DataPath, value: object) -> tuple[int, int, str]:
    """Return where the characters of a value begin and end, and those of another value, in flow
    style; raise ``NotBlessed`` for a value on several lines.
    """
    # the loader in Python: its marks count characters. It refuses tabs between words, unlike
    # libyaml and YAML 1.2
    text = _TABS.sub(lambda tabs: " " * len(tabs[0]), document.content.decode("utf-8"))
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
        else:
            entries = node.value if isinstance(node, yaml.MappingNode) else []
            node = next((entry for name, entry in entries if name.value == str(key)), None)
        if node is None:
            raise NotBlessed(f"there is no value at {key!r}")
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        raise NotBlessed("the value has several lines: change it by hand")
    return node.start_mark.index, node.end_mark.index, flow(value)


# -- a changed file --------------------------------------------------------------------------------


def changed(document: Document, changes: Sequence[Change]) -> Document:
    """Return a spec with changes; raise ``NotBlessed`` for those that overlap, and unless it then
    has exactly the data that they give.
    """
    text, data = document.content.decode("utf-8"), document.data
    after = len(text)
    for path, value in changes:
        data = replaced(data, path, value)
    for start, end, new in sorted({_edit(document, *change) for change in changes}, reverse=True):
        if end > after:
            raise NotBlessed("two changes are at one place: change it by hand")
        text, after = text[:start] + new + text[end:], start
    try:
        result = parse(text, path=document.path, kind=SPEC)
    except (InvalidSpecs, UnicodeEncodeError) as error:
        raise NotBlessed("the changed text cannot be read: change it by hand") from error
    if repr(result.data) != repr(data):  # 1, 1.0 and true differ
        raise NotBlessed("the changed text would mean something else: change it by hand")
    return result


def patch(document: Document, text: str) -> str:
    """Return the unified diff of a file and its changed text, for ``git apply`` and ``patch
    -p1``.
    """
    name = document.file.replace("\\", "/").lstrip("/")
    name += (
        "\t" if " " in name else ""
    )  # as git does: 'patch' ends a name at a blank unless a tab follows it
    before, after = (
        version.splitlines(keepends=True) for version in (document.content.decode("utf-8"), text)
    )
    changes = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in changes
    )


# -- the command -----------------------------------------------------------------------------------


@frozen
class BlessOptions(Selection):
    """The options of ``bless``."""

    targets: tuple[str, ...] = argument(
        "RUN",
        "recorded runs: a folder, an id, or latest; of several machines or versions, if there are",
        nargs="+",
    )
    write: bool = flag("change the specs instead of printing the patch")
    backends: tuple[Path, ...] = backend_files()


@frozen
class ChangedSpec:
    """A spec with its changed text."""

    before: Document
    after: Document
    cases: tuple[str, ...]
    """The red cases that pass by it."""
    has_control: bool


def bless(options: BlessOptions) -> tuple[list[ChangedSpec], dict[tuple[str, str], str], int]:
    """Return the changed specs, why red cases are not blessed (by run and id), and how many cases
    of the runs are selected.

    Raise ``UsageError`` for a run that cannot be read or whose specs changed since.
    """
    recorded, unrecorded, red, backends = read_samples(options.targets, options.backends)
    cases = list({sample.case.id: sample.case for sample in recorded}.values())
    cases += [case for case, _ in unrecorded]
    chosen = {str(case.id) for case in select(cases, backends, options)}
    if not (options.backend or options.select or options.tag):  # also those whose specs are gone
        chosen.update(str(result.case_id) for _, result in red)
    refused = {
        (run, str(result.case_id)): f"{result.outcome.label}: {result.reason}"
        for run, result in red
    }
    for sample in recorded:
        refused.pop(sample.key, None)
    specs: list[ChangedSpec] = []
    for spec in dict.fromkeys(sample.case.spec for sample in recorded if sample.is_red):
        samples = [sample for sample in recorded if sample.case.spec == spec]
        first = samples[0]
        inspection = inspect_specs(
            specs_of([first.result]), first.backend_files, surroundings_of(first.torch, None)
        )
        anatomy = inspection.valid().anatomies[0]
        others = [(case, surroundings) for case, surroundings in unrecorded if case.spec == spec]
        facts = SpecFacts(anatomy=anatomy, samples=samples, others=others, chosen=frozenset(chosen))
        try:
            after = changed(anatomy.document, propose(facts))
            judge_again(after, samples, facts.blessed)
        except NotBlessed as error:
            refused.update(dict.fromkeys((sample.key for sample in facts.blessed), str(error)))
        else:
            specs.append(
                ChangedSpec(
                    before=anatomy.document,
                    after=after,
                    cases=tuple(dict.fromkeys(sample.case.id for sample in facts.blessed)),
                    has_control="control" in anatomy.data,
                )
            )
        refused.update(facts.refused)
    return specs, {key: reason for key, reason in refused.items() if key[1] in chosen}, len(chosen)


def judge_again(after: Document, samples: Sequence[Sample], blessed: Iterable[Sample]) -> None:
    """Raise ``NotBlessed`` unless a changed spec validates, blessed cases pass by it, and the
    outcomes of others stay.
    """
    must_pass = {sample.key for sample in blessed}
    suites: dict[object, Suite] = {}
    for sample in samples:
        key = (sample.torch, sample.backend_files)
        if key not in suites:
            try:
                specs = specs_of([sample.result])
                texts = {spec.path: after.content for spec in specs}
                suites[key] = load_specs(
                    specs, sample.backend_files, surroundings_of(sample.torch, None), texts
                )
            except InvalidSpecs as error:
                raise NotBlessed(
                    f"the changed spec would not validate: {error.diagnostics[0]}"
                ) from error
            except UsageError as error:
                raise NotBlessed(str(error)) from error
        case = next((case for case in suites[key].cases if case.id == sample.case.id), None)
        if case is None:
            raise NotBlessed(f"{sample.case.id} would be gone")
        if not sample.steps:
            continue
        case = without_benches(case) if sample.result.benches_left_out else case
        backend = suites[key].backends.by_name[case.backend]
        files = RecordedFiles(sample.folder, sample.result.evidence)
        now, then = (
            rejudge.judged_again(
                judged, backend, sample.surroundings, sample.result, files, sample.folder
            )
            for judged in (case, sample.case)
        )
        if isinstance(now, str) or isinstance(then, str):
            raise NotBlessed(now if isinstance(now, str) else str(then))
        outcome = f"{now.outcome.label}: {now.reason}"
        if sample.key not in must_pass:
            if now.outcome is not then.outcome:
                raise NotBlessed(f"{case.id} of {sample.run} would become {outcome}")
        elif now.outcome not in PASSED:
            raise NotBlessed(
                f"{case.id} of {sample.run}, judged again by the changed spec, is {outcome}"
            )


def main(options: BlessOptions) -> ExitCode:
    """Print the patch, or write the specs; exit 1 where a red case is not blessed, 4 where no case
    of the runs is selected.
    """
    specs, refused, chosen = bless(options)
    for spec in () if options.write else specs:
        output.raw(patch(spec.before, spec.after.content.decode("utf-8")))
    for (run, case_id), why in refused.items():
        output.note(one_line(f"not blessed: {case_id} ({run}): {why}"))
    for spec in specs:
        if options.write:
            replace(spec.before.path, spec.after.content)
        if spec.has_control:
            output.note(
                f"{spec.before.file}: has a control; 'audit --run' shows whether it still fails"
            )
    cases = counted(sum(len(spec.cases) for spec in specs), "red case")
    text = f"{cases} blessed in {counted(len(specs), 'spec')}"
    if options.write:
        text += ", written"
    elif specs:
        text += ": pass the output to 'git apply' or 'patch -p1'"
    if refused:
        text += f", {len(refused)} not blessed"
    if not chosen:
        output.note(f"no case of the runs is selected; {text}")
        return ExitCode.NOTHING
    output.note(text)
    return ExitCode.FAILED if refused else ExitCode.OK
