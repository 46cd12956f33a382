"""``repro``: a script that needs only torch and shows one case; with ``--shrink`` a smaller case
that fails in the same way.

A case of torch's database of operators has a script for each sample.

With ``--shrink`` the case fails twice alike, a smaller spec is searched, its script is written, and
the cause of wrong numbers and the stage that breaks are named. The search is delta debugging over
the edits of each pass, deterministic and without torch. What must stay the same of a failure is its
signature. As between attempts (``model.results``) the observed values do not count. Lines change
here, so that an expectation is identified by its kind and by what it expects, without numbers that
a smaller shape changes.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch_conformance.language.load import Suite, load, surroundings_of
from torch_conformance.language.read.templates import TemplateError
from torch_conformance.machine import cache_dirs, capabilities, output, scratch
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.machine.redaction import KNOWN
from torch_conformance.model.case import Case
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.devices import kind_of
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError
from torch_conformance.model.expectation import About, Verdict
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import (
    ExecutionOptions,
    SpecFiles,
    argument,
    flag,
    natural,
    option,
    positive,
)
from torch_conformance.plan import schedule
from torch_conformance.plan.script import MODULES, NothingChecked, rendered, script_of
from torch_conformance.plan.selection import is_of_operator, without_benches
from torch_conformance.plan.worker_plan import seed_of
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.run.pipeline import CaseRunner
from torch_conformance.tools.author.commands.explain import (
    Document,
    cases_named,
    reduced_document_of,
    surroundings_in,
    text_of,
)
from torch_conformance.tools.author.shrink_edits import PASSES, Edit, Pass, applied
from torch_conformance.vocabulary.expectations import EXPECTATIONS


class OutOfBudget(Exception):
    """No further attempt may be made; the text says why."""


@dataclass(slots=True)
class Search:
    """A search.

    ``best`` is the smallest document so far, whenever the search ends; ``ended`` says why it ended
    early.
    """

    best: Document
    attempt: Callable[[Document], bool]
    """Whether a document fails as the first one did."""
    taken: Callable[[str], None] = lambda words: None
    """Hears of each edit that was kept."""
    ended: str = ""
    _known: set[str] = field(default_factory=set)

    def run(self, passes: Sequence[Pass] = PASSES) -> Document:
        """Repeat the passes until none changes the document, or an attempt ends the search."""
        try:
            before = None
            while before != text_of(self.best):
                before = text_of(self.best)
                for reduction in passes:
                    self._reduce(reduction)
        except OutOfBudget as error:
            self.ended = str(error)
        except KeyboardInterrupt:
            self.ended = "interrupted"
        return self.best

    def _reduce(self, reduction: Pass) -> None:
        """Try all edits of a pass at once, then halves, down to single ones.

        Edits that were kept change what is proposed.
        """
        size = len([*reduction.propose(self.best)]) if reduction.together else 1
        while size >= 1:
            at = 0
            while at < len(edits := [*reduction.propose(self.best)]):
                if not self._takes(edits[at : at + size]):
                    at += size
                elif not reduction.together:
                    at = 0  # alternatives: another list, of which the first ones are the smallest
            size //= 2

    def _takes(self, edits: Sequence[Edit]) -> bool:
        candidate = applied(self.best, edits)
        text = text_of(candidate)
        if text in self._known or candidate == self.best:
            return False
        self._known.add(text)
        if not self.attempt(candidate):
            return False
        self.best = candidate
        self.taken(
            "; ".join(edit.words for edit in edits[:3])
            + (f"; and {len(edits) - 3} more" if len(edits) > 3 else "")
        )
        return True


# -- what is the same failure ----------------------------------------------------------------------

_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_PARTS = re.compile(r"\[[^\]]*\]")
_RAISED = re.compile(r"(?P<type>[\w.]+) in phase '(?P<phase>[^']*)'(?:: *(?P<text>[^\n]*))?")
_WRAPPED = re.compile(r"\bgot [A-Za-z]\w*\(.*")
"""What dynamo says of an error that it wraps, with a text that is the same for all of them before
it.
"""
_OF_NUMBERS = re.compile(r" within | bit for bit| close to ")

FAILED = (Outcome.FAIL, Outcome.FELL_BACK, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)
"""The outcomes that can be shrunk."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A failure without what is different in a smaller case."""

    outcome: Outcome
    failure_type: str
    verdicts: frozenset[tuple[str, str, str]]
    phase: str

    def __str__(self) -> str:
        kinds = ", ".join(sorted({kind for kind, _, _ in self.verdicts})) or self.failure_type
        return f"{self.outcome.label} ({kinds}{f', {self.phase}' if self.phase else ''})"

    @property
    def why_no_stage(self) -> str:
        """Why torch's bisector is not asked for the stage; empty where it is."""
        kinds = {kind for kind, _, _ in self.verdicts} - {"proof"}
        others = [kind for kind in sorted(kinds) if kind not in PORTABLE]
        if kinds and not others:
            return ""
        other = ", ".join(others) or self.outcome.label
        return f"not looked for: {other} is not what other stages can show"


def signature_of(result: CaseResult) -> Signature | None:
    """Return the signature of a failure; None for any other result."""
    if result.outcome not in FAILED:
        return None
    verdicts = result.failed
    raised = any(verdict.kind == "raised" for verdict in verdicts)
    relevant = [verdict for verdict in verdicts if not (raised and verdict.kind == "proof")]
    return Signature(
        outcome=result.outcome,
        failure_type=result.failure_type,
        verdicts=frozenset(
            (verdict.kind, verdict.status.value, _said(verdict)) for verdict in relevant
        ),
        phase=result.phase,
    )


def _said(verdict: Verdict) -> str:
    if verdict.kind in ("raised", "raises"):
        match = _RAISED.match(verdict.observed)
        text = verdict.observed if match is None else f"{match['type']} {match['text'] or ''}"
        wrapped = _WRAPPED.search(verdict.detail)
        return " ".join(
            _masked(part)[:200] for part in (text, wrapped[0] if wrapped else "", verdict.expected)
        )
    if verdict.kind == "close":
        is_of_numbers = _OF_NUMBERS.search(verdict.expected)
        return "numbers" if is_of_numbers else "not of the form of its reference"
    return _masked(verdict.expected)


def _masked(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return _NUMBERS.sub("#", _PARTS.sub("[]", first))


@frozen
class ReproOptions(ExecutionOptions, SpecFiles):
    """The options of ``repro``.

    Candidates of ``--shrink`` run one after the other, each in a new process.
    """

    case: str = argument("CASE", "a case's id")
    sample: int | None = option(
        "N",
        "the sample with this number, of a case of torch's database of operators",
        reads=natural,
    )
    shrink: bool = flag(
        "instead of the script, run the case and write a smaller one that fails in the same "
        "way (fewer steps, options and inputs, a "
        "smaller function, smaller shapes), as a spec and a script; names the cause of "
        "wrong numbers and, by torch's bisector, the stage that breaks. Ctrl-C keeps the best so "
        "far"
    )
    out: Path = option(
        "DIR",
        "with --shrink: folder of the spec and the script (default: shrunk)",
        Path("shrunk"),
        Path,
    )
    seconds: float = option(
        "S", "with --shrink: end the search after this many seconds (default: 600)", 600.0, positive
    )
    timeout: float = option(
        "S", "with --shrink: deadline of a candidate in seconds (default: 300)", 300.0, positive
    )
    jobs: str = "1"
    timeout_factor: float = 1.0


NAME = "shrunk"
"""The name of the spec that a search writes."""


# -- trials ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Trials:
    """Runs cases and documents.

    One warm process for each environment serves all of them, until ``stack`` is closed.
    """

    options: ReproOptions
    suite: Suite
    folder: Path
    stack: contextlib.ExitStack
    _runners: dict[str, tuple[CaseRunner, Machine]] = field(default_factory=dict)
    _number: int = 0

    def run(self, case: Case) -> CaseResult:
        """Run one case; raise ``UsageError`` where this machine cannot run it."""
        runner, machine = self.runner(case)
        verdict = capabilities.availability_of(case, machine)
        if verdict.reason:
            raise UsageError(f"{case.id} cannot run here: {verdict.reason}")
        surroundings = surroundings_of(machine.torch, machine)
        (result,) = runner.run([without_benches(case)], surroundings, lambda _: "")
        return result

    def surroundings(self, case: Case) -> Surroundings:
        """Return what the conditions of a case ask for."""
        machine = self.runner(case)[1]
        surroundings = surroundings_of(machine.torch, machine)
        return surroundings_in(case, self.suite.backends, surroundings)

    def runner(self, case: Case) -> tuple[CaseRunner, Machine]:
        """Return what runs a case, and the facts of the machine."""
        key = repr(schedule.environment_of(case).key)
        if key not in self._runners:
            folder = RunFolder(path=self.folder / f"runs-{len(self._runners)}", run_id="shrink")
            runner = CaseRunner(self.options, self.suite, [case], folder, 1)
            self.stack.callback(runner.close)
            self._runners[key] = (runner, runner.look_at_machine())
        return self._runners[key]

    def case_of(self, document: Document, path: Path | None = None, head: str = "") -> Case | None:
        """Write a document; return its case, or None unless it is a valid spec of one case."""
        self._number += 1
        path = path or self.folder / "candidates" / str(self._number) / f"{NAME}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + text_of(document), encoding="utf-8")
        try:
            cases = load([path], self.options.backends).cases
        except InvalidSpecs:
            return None
        return cases[0] if len(cases) == 1 else None


# -- the stage -------------------------------------------------------------------------------------

PORTABLE = {
    "raised",
    "side-effects",
    *(kind for kind in EXPECTATIONS if EXPECTATIONS[kind].about is About.ANYTHING),
}
"""Kinds of failure that another backend of dynamo can show too."""


def _stage_of(script: str, folder: Path, seconds: float) -> str:
    """Let torch's own bisector run a script that exits with 1 because of the failure; return the
    stage of the compiler that breaks.

    The bisector keeps its state in the folder of inductor's cache, and a session that is not ended
    changes every later compile of the user (pytorch/pytorch#143453). Here the state is in a scratch
    folder of its own, and goes with it.
    """
    driver, copy, state, answer = (
        folder / name for name in ("driver.py", "script.py", "state", "answer.json")
    )
    state.mkdir(parents=True)
    driver.write_bytes((cache_dirs.folder("templates") / "bisect.py.j2").read_bytes())
    copy.write_text(script, encoding="utf-8")
    command = [sys.executable, "-P", str(driver), str(copy), str(state), str(answer)]
    null = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=null, stdout=null, stderr=null, cwd=folder, start_new_session=True
    ) as child:
        try:
            ending = f"ended with {child.wait(max(seconds, 1.0))}"
        except subprocess.TimeoutExpired:
            ending = "did not end in time"
        except KeyboardInterrupt:
            return "not looked for: interrupted"
        finally:
            with contextlib.suppress(OSError):  # a run of the script is a fork of the driver
                os.killpg(child.pid, signal.SIGKILL)
    try:
        stage = json.loads(answer.read_bytes()[:100_000])["found"]
        if stage is None:
            return "none: the script passes under the bisector with every backend"
        number, debug = stage["bisect_number"], stage["debug_info"]
        words = (stage["backend"], stage["subsystem"], number and f"application {number}")
        text = ", ".join(map(str, filter(None, words)))
        return (f"{text}: {debug}" if debug and debug != stage["subsystem"] else text)[:500]
    except (OSError, ValueError, LookupError, TypeError):
        # the child ran code of the spec: it may have written anything, or nothing
        return f"not found: the bisector {ending}"[:500]


# -- the cause of wrong numbers --------------------------------------------------------------------

SWITCHES: Mapping[str, Document] = {
    "max_fusion_size: 1": {"config": {"max_fusion_size": 1}},
    "emulate_precision_casts: true": {"config": {"emulate_precision_casts": True}},
    "decompositions only": {"compile": {"backend": "aot_eager_decomp_partition"}},
}
"""What may make wrong numbers right, in the order in which it is tried."""

_NODE = re.compile(
    r'^ +\w+: "(?P<dtype>\w+)\[[^"]*" = '
    r"(?:\w+(?P<item>\[)|[\w.]*\b(?P<call>\w+)\(|(?:[\w.]+ )?(?P<sign>[^\w\s]+))"
    r"|;  (?P<write>setitem)\w* = ",
    re.MULTILINE,
)


def operators_of(graph: str) -> str:
    """Return the operators of a graph as dynamo prints it, with the dtypes of their results in
    torch's abbreviations.
    """
    operators = [
        node["write"] or f"{node['call'] or node['sign'] or 'getitem'}({node['dtype']})"
        for node in _NODE.finditer(graph)
    ]
    return ", ".join(dict.fromkeys(operators))


def cause_of(best: Document, trials: Trials) -> str:
    """Return the operators that are left of wrong numbers, and the switch that makes them right."""
    operators, cure = "", f"wrong with {[*SWITCHES][-1]}"
    claim = {"graph": {"stage": "dynamo", "count": {"min": 1}}}
    steps = [
        {**step, "expect": [*step.get("expect", ()), claim]} if "call" in step else step
        for step in best["steps"]
    ]
    for words, sections in SWITCHES.items():
        changed = {name: {**best.get(name, {}), **options} for name, options in sections.items()}
        case = trials.case_of({**best, **changed, "steps": steps})
        if case is None:
            continue
        result = trials.run(case)
        graphs = sorted(trials.folder.glob(f"runs-*/{result.folder}/graph-*.txt"))
        operators = operators or ", ".join(operators_of(file.read_text("utf-8")) for file in graphs)
        if result.outcome in (Outcome.PASS, Outcome.FELL_BACK):  # the latter: not by inductor
            cure = f"right with {words}"
            break
    return f"{operators or 'operators not seen'}; {cure}"


def _free_place(out: Path) -> Path:
    """Return the path of the spec in a folder, which is made; raise ``UsageError``."""
    spec = out / f"{NAME}.yaml"
    if spec.exists():
        raise UsageError(f"{spec} is there already: name another folder with --out, or remove it")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {out}: {error.strerror}") from error
    return spec


# -- the search as a whole -------------------------------------------------------------------------


def shrink(
    case: Case, suite: Suite, options: ReproOptions, folder: Path, say: Callable[[str], None]
) -> tuple[list[str], ExitCode]:
    """Search the smallest case that fails as this one; return what was found as lines.

    An interrupt keeps the best so far.

    Raise ``UsageError`` for a case that passes, or whose failure changes.
    """
    spec = _free_place(options.out)
    with contextlib.ExitStack() as stack:
        trials = Trials(options, suite, folder, stack)
        # the case fails twice in the same way
        result = trials.run(case)
        signature = signature_of(result)
        if signature is None:
            reason = f": {result.reason}" if result.reason else ""
            raise UsageError(
                f"{case.id} is {result.outcome.label}{reason}: only a case that fails can be "
                "made smaller"
            )
        say(f"run 1 of the case: {signature}")
        new_signature = signature_of(trials.run(case))
        if new_signature != signature:
            other = "PASS" if new_signature is None else str(new_signature)
            raise UsageError(
                f"{case.id} is flaky: {signature}, then {other}: 'run --repeat' says how "
                "often it fails"
            )
        document = reduced_document_of(case, trials.surroundings(case))
        end, runs = time.monotonic() + options.seconds, 0

        def fails_alike(document: Document) -> bool:
            nonlocal runs
            if time.monotonic() >= end:
                raise OutOfBudget(f"--seconds {options.seconds:g} are over")
            candidate = trials.case_of(document)
            if candidate is None:
                return False
            runs += 1
            try:
                return signature_of(trials.run(candidate)) == signature
            except UsageError:  # a candidate that cannot run here is none
                return False

        try:
            if not fails_alike(document):
                raise UsageError(
                    f"{case.id}, written as a spec of its own, does not fail in the same way"
                )
        except OutOfBudget as error:
            raise UsageError(f"{error} before the search began: allow more") from error
        say(f"{signature}: looking for a smaller case, at most {options.seconds:g} s")
        search = Search(document, fails_alike, lambda words: say(f"run {runs}: {words}"))
        search.run()
        head = f"# a smaller case with the failure of {case.id}\n"
        cause = ""
        is_of_numbers = any(failure == "numbers" for _, _, failure in signature.verdicts)
        if is_of_numbers and search.ended != "interrupted":
            say("looking for the switch that makes the numbers right")
            cause = cause_of(search.best, trials)
            head += f"# cause: {cause}\n"
        # the script names positions of the spec, which is in the same folder
        smallest = trials.case_of(search.best, spec, head)
        assert smallest is not None, "the best document was run"
        machine = trials.runner(smallest)[1]
        script, stage = str(spec.with_name("repro.py")), "not looked for"
        try:
            text = script_of(
                smallest, trials.surroundings(smallest), machine.facts, machine.torch or "unknown"
            ).text
        except NothingChecked as error:
            script = f"none: {error}"
        else:
            Path(script).write_text(text, encoding="utf-8")
            if search.ended != "interrupted":
                stage = signature.why_no_stage
            if not stage:
                say("looking for the stage that breaks, with torch's bisector")
                stage = _stage_of(text, folder / "stage", options.seconds)
        early = f", ended early: {search.ended}" if search.ended else ""
        lines = [f"spec: {spec}", f"script: {script}", f"stage: {stage}", f"{runs} runs{early}"]
        lines += [f"cause: {cause}"] if cause else []
        return lines, ExitCode.INTERRUPTED if search.ended == "interrupted" else ExitCode.OK


# -- the command -----------------------------------------------------------------------------------


_FORMS = Path(__file__).parents[3] / "worker" / "torch_compat" / "sample_forms.py"
"""What the script of a sample with ``forms`` makes them by."""


def script_of_sample(case: Case, sample: int) -> str:
    """Return the script of a sample, from 0, of a case whose one step is ``samples``: its compiled
    call is compared with eager.
    """
    words, settings = case.steps[0].arguments, case.body.settings
    options = ((module, settings.by_section[part]) for part, module in MODULES.items())
    script = rendered(
        [f"{case.id}, sample {sample}"],
        settings.env,
        [],
        template="repro-sample.py.j2",
        device=case.device,
        kind=ascii(kind_of(case.device)),
        on=ascii(case.device),
        seed=seed_of(case),
        sample=sample,
        compile="".join(f", {name}={value!a}" for name, value in settings.compile.items()),
        in_forms=ascii(_FORMS.read_text("utf-8")) if "forms" in words else "",
        **{**words, "op": ascii(words["op"]), "variant": ascii(words["variant"])},
        main=[
            f"{module}.{name} = {value!a}"
            for module, options_of_module in options
            for name, value in options_of_module.items()
        ],
        **dict.fromkeys(("options", "module", "params", "shows_code", "needs_values"), ""),
        helpers={"check"},
    )
    return script.text


def main(options: ReproOptions) -> ExitCode:
    """Print the script of the one case that the id selects; what it does not say goes to standard
    error too.

    With ``--shrink``: exit 130 where an interrupt ended the search; the best so far is written all
    the same.
    """
    suite = load(options.paths, options.backends)
    case, *others = cases_named(options.case, suite)
    if others:
        raise UsageError(f"{len(others) + 1} cases match '{options.case}': name one by its id")
    if options.shrink:
        with contextlib.closing(scratch.make()) as place:
            lines, code = shrink(case, suite, options, place.path, output.note)
        for text in lines:  # code of the spec may have written line ends
            output.line(text)
        return code
    if is_of_operator(case):
        output.raw(script_of_sample(case, options.sample or 0))
        return ExitCode.OK
    if options.sample is not None:
        raise UsageError("--sample goes with a case of torch's database of operators")
    KNOWN.learn_environment(case.body.settings.env)
    command = shlex.join(
        ["torch-conformance", "run", *map(str, options.paths), "--select", case.id]
    )
    machine = capabilities.inspect_files(installed_torch())
    machine_surroundings = surroundings_of(machine.torch, machine)
    surroundings = surroundings_in(case, suite.backends, machine_surroundings)
    try:
        program = script_of(
            without_benches(case), surroundings, machine.facts, machine.torch or "unknown"
        )
    except (NothingChecked, TemplateError) as error:  # the latter: this machine lacks a fact
        raise UsageError(f"no script: {error} ('{command}' runs this case)") from error
    output.raw(program.text)
    for text in program.unchecked:
        output.note(f"not checked by the script: {text}")
    return ExitCode.OK
