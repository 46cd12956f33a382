"""``repro --shrink`` as a whole: the case fails twice alike, a smaller spec is searched, a script is written, the stage is named."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import UsageError
from runner.core.options import ReproOptions
from runner.language.load import Suite
from runner.plan.case_document import Document, document_of, text_of
from runner.plan.script import NothingChecked, script_of
from runner.run.shrinking.search import OutOfBudget, Search
from runner.run.shrinking.signature import Signature, signature_of
from runner.run.shrinking.stages import COMPARED, stage_of
from runner.run.shrinking.trials import NAME, Attempts, Trials

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The result of a search."""

    spec: Path
    script: Path | None
    why_no_script: str
    stage: str
    runs: int
    ended: str
    """Why the search ended before nothing smaller was found; empty where it did not."""


def shrink(case: Case, suite: Suite, options: ReproOptions, folder: Path, say: Say) -> Shrunk:
    """Search the smallest case that fails as this one; raise ``UsageError`` for a case that passes, or whose failure changes."""
    spec = options.out / f"{NAME}.yaml"
    if spec.exists():
        raise UsageError(f"{spec} is there already: name another folder with --out, or remove it")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {options.out}: {error.strerror}") from error
    with Trials(options, suite, options.backends, folder) as trials:
        wanted = _failure(case, trials, say)
        document = document_of(case, trials.here(case))
        attempts = Attempts(trials, wanted, options.seconds, options.tries)
        _require_same_failure(case, document, attempts, trials)
        say(f"{wanted}: looking for a smaller case, at most {options.seconds:g} s and {options.tries} runs")
        search = Search(document, attempts, lambda words: say(f"run {attempts.made}: {words}"))
        search.run()
        spec.write_text(_with_origin(case, search.best), encoding="utf-8")
        return _with_script(search, wanted, spec, trials, options, attempts.made, say, folder)


def _failure(case: Case, trials: Trials, say: Say) -> Signature:
    """Return the failure of a case that fails twice in the same way."""
    results = [trials.run(case)]
    first = signature_of(results[0])
    if first is None:
        reason = f": {results[0].reason}" if results[0].reason else ""
        raise UsageError(f"{case.id} is {results[0].outcome.label}{reason}: only a case that fails can be made smaller")
    say(f"run 1 of the case: {first}")
    again = signature_of(trials.run(case))
    if again != first:
        other = "PASS" if again is None else str(again)
        raise UsageError(f"{case.id} is flaky: {first}, then {other}: 'run --repeat' says how often it fails")
    return first


def _require_same_failure(case: Case, document: Document, attempts: Attempts, trials: Trials) -> None:
    """Raise ``UsageError`` where the case, written out as a spec of its own, does not fail as it did."""
    try:
        fails = attempts(document)
    except OutOfBudget as error:
        raise UsageError(f"{error} before the search began: allow more") from error
    if not fails:
        why = trials.problems_of(document)
        raise UsageError(f"{case.id}, written as a spec of its own, {f'is not valid: {why}' if why else 'does not fail in the same way'}")


def _with_origin(case: Case, document: Document) -> str:
    return f"# a smaller case with the failure of {case.id}\n{text_of(document)}"


def _with_script(
    search: Search,
    wanted: Signature,
    spec: Path,
    trials: Trials,
    options: ReproOptions,
    runs: int,
    say: Say,
    folder: Path,
) -> Shrunk:
    found = trials.case_in(spec)  # the script names positions of the spec beside it
    assert found is not None, "the best document was run"
    machine = trials.machine_of(found)
    script, why, stage = None, "", "not looked for"
    try:
        text = script_of(found, trials.here(found), machine.facts, machine.torch or "unknown").text
    except NothingChecked as error:
        text, why = "", str(error)
    if text:
        script = spec.with_name("repro.py")
        script.write_text(text, encoding="utf-8")
        if search.ended != "interrupted" and not options.no_stage:
            stage = _stage(text, wanted, trials, folder, options, say)
    return Shrunk(spec=spec, script=script, why_no_script=why, stage=stage, runs=runs, ended=search.ended)


def _stage(text: str, wanted: Signature, trials: Trials, folder: Path, options: ReproOptions, say: Say) -> str:
    kinds = {kind for kind, _, _ in wanted.verdicts} - {"proof"}
    if not kinds or not kinds <= COMPARED:
        return f"not looked for: {', '.join(sorted(kinds - COMPARED)) or wanted.outcome.label} is not what other stages can show"
    say("looking for the stage that breaks, with torch's bisector")
    try:
        return stage_of(text, trials, folder / "stage", options.seconds).words
    except KeyboardInterrupt:
        return "not looked for: interrupted"
