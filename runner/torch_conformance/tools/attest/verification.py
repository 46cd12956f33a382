"""``verify``: a submission checked by a stranger, from the bytes of the archive to a statement that
was computed again.

Its files are compared with the published ones and loaded as the run read them; then its cases are
judged again, and what it claims is computed from what that gives: findings, what could not be
judged, what follows from evidence, and what is the word of its author.
"""

import functools
import itertools
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_conformance import __version__
from torch_conformance.judge.evidence import carried_out, read_facts
from torch_conformance.judge.waiving import Waivers, apply
from torch_conformance.language.load import Suite, load, load_specs, surroundings_of
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.language.waivers import load_waivers
from torch_conformance.machine import output
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import Machine, availability_of
from torch_conformance.machine.installed_torch import release
from torch_conformance.machine.redaction import redacted
from torch_conformance.matching.time_limit import PatternTooSlow, time_limit
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.case_facts import Facts
from torch_conformance.model.codec import COMPUTED, encode
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.devices import builds
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError, one_line, shown_path
from torch_conformance.model.document import Document
from torch_conformance.model.escaping import plain
from torch_conformance.model.header import ProfileRecord, RunHeader
from torch_conformance.model.module_files import described
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import NOT_CLAIMED, WEAK, CaseResult, Judged, Redacted
from torch_conformance.model.statement import Statement
from torch_conformance.model.targets import simulated
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import (
    REFUSED,
    argument,
    flag,
    natural,
    option,
    profile_option,
    several,
)
from torch_conformance.plan.selection import without_benches
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.case_files import (
    OBSERVATION,
    SERVICES,
    RecordedFiles,
    alterations,
    digest,
)
from torch_conformance.record.conclusion import conclusion_of, profile_statement
from torch_conformance.record.journal import (
    JournalError,
    NamedRun,
    Run,
    digest_of_selection,
    read_run,
    readable,
    totals,
)
from torch_conformance.report.junit import document_of
from torch_conformance.run import rejudge
from torch_conformance.run.compared_runs import read_placed
from torch_conformance.run.pipeline import phases_of, with_case
from torch_conformance.run.preparation import option_text
from torch_conformance.tools.attest import archive
from torch_conformance.tools.attest.against import Agreement
from torch_conformance.tools.attest.against import agreement as compared
from torch_conformance.tools.attest.archive import (
    ATTESTATION,
    ENVELOPE,
    FIXED,
    JOURNAL,
    JUNIT,
    MODULE,
    MOST_COMPRESSED,
    OWN,
    SHIPPED,
    BadArchive,
    name_of,
    read_key,
    read_untrusted,
    unpacked,
)
from torch_conformance.tools.attest.contradictions import disagreements, of_machine
from torch_conformance.tools.attest.profiles import (
    cases_of,
    digest_of_requirements,
    for_compiler,
    read_profile,
    shipped_profiles,
)
from torch_conformance.tools.attest.recompute import Recomputation, recomputed
from torch_conformance.vocabulary.backend import Backend

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


CHECKS: Mapping[str, str] = {
    "archive": "the file is one archive in the form that 'submit' writes, and nothing else",
    "signature": "the attestation is signed as it says, and with the key of --key",
    "attestation": "the attestation says what the other members say, and names each with its sha256",  # noqa: E501 - a word without a break
    "journal": "the journal ends, and no line contradicts another",
    "report": "the JUnit report says what the journal says",
    "files": "the files that the run read are the published ones",
    "evidence": "each observation and each piece of generated code is the "
    "one by which its case was judged",
    "cases": "each case is one of the files, with the same content, claim, options and command",
    "verdicts": "judging each observation again gives the same verdicts, outcome and waivers",
    "facts": "code, counters, census and kernels of each observation agree",
    "machine": "the facts of the machine allow what was executed there",
    "profile": "the run is one of this profile, with its cases, waivers and options",
    "against": "your own run of the profile observed what the archive says",
    "numbers": "what eager and float64 give is what your torch computes of the same inputs",
}
"""What is checked, by the word of a finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction. One of them makes a submission worthless."""

    check: str
    """A key of ``CHECKS``."""
    message: str


@dataclass(slots=True, kw_only=True)
class Verification:
    """The result of verifying a submission, filled in check by check."""

    findings: tuple[Finding, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Why something could not be judged here."""
    follows: tuple[str, ...] = ()
    """Claims that follow from the evidence in the archive and the published files."""
    tested: tuple[str, ...] = ()
    """What was tested, as the archive names it: machines, torch, and the author's backends."""
    words: tuple[str, ...] = ()
    """Claims for which the archive has no evidence."""
    weak: tuple[str, ...] = ()
    """The expectations that cannot fail, each with its place and the reason that its spec
    writes.
    """
    run: str = ""
    signer: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)
    """The outcomes as they were judged again."""
    statement: Statement | None = None
    """As it was computed again."""
    rests_on: Mapping[str, int] = field(default_factory=dict)
    """What of the outcomes is the author's word: the number of ``observations``, of ``unshown``
    cases that ended without one, and of ``unavailable`` ones whose reason no fact shows; how many
    required cases the reader's run observed alike (``observed_again``), and of how many cases the
    reader computed eager's numbers again (``computed_again``).
    """
    against: Agreement | None = None
    recomputed: Recomputation | None = None
    code_of_cases: ExitCode = field(default=ExitCode.NOTHING, metadata={COMPUTED: True})
    """The exit code of a run with these results."""

    def finds(self, check: str, *problems: str) -> None:
        """Add what one check found."""
        self.findings += tuple(Finding(check, problem) for problem in problems)

    @property
    def exit_code(self) -> ExitCode:
        """1 for a contradiction, 4 where something could not be judged, else that of the statement
        or the results.
        """
        if self.findings:
            return ExitCode.FAILED
        code = self.statement.conformance.exit_code if self.statement else self.code_of_cases
        return ExitCode.NOTHING if self.unjudged and code is ExitCode.OK else code


FORMAT = 1
"""The number of the form of ``--json``."""


def as_json(verification: Verification) -> dict[str, object]:
    """Return a verification as ``verify --json`` prints it."""
    parts: Any = encode(verification)
    return {
        "format": FORMAT,
        "verified": not (verification.findings or verification.unjudged),
        "exit_code": int(verification.exit_code),
        **parts,
    }


# -- what follows from evidence --------------------------------------------------------------------


def claims_of(
    run: Run,
    rests_on: Mapping[str, int],
    *,
    signer: str,
    is_signed: bool,
    has_files: bool,
    has_profile: bool,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the claims of a run that follow from evidence, and those that are its author's word; a
    sentence each.

    ``rests_on`` is that of the verification. ``signer`` is the id of the key that the attestation
    names, empty for none. The reader's key checked the signature (``is_signed``), and the author's
    files and profile were compared with those of the reader (``has_files``, ``has_profile``), or
    not.
    """
    header, results = run.header, run.results
    author_files, shipped = (
        sum(name.startswith(f"{folder}/") for name in header.specs) for folder in (OWN, SHIPPED)
    )
    proven = sum(result.outcome is Outcome.UNAVAILABLE for result in results)
    proven -= rests_on["unavailable"]
    unshown = [result for result in results if result.folder and not _is_shown(result)]
    waived = sum(result.outcome is Outcome.XFAIL for result in unshown)
    profile = "".join(f"{record.name} {record.version}" for record in header.profile)
    signature = (
        f"it names the key {signer[:16]}; check it with --key" if signer else "it is not signed"
    )
    follows = {
        f"the verdicts, proofs and outcomes of {rests_on['observations']} executed cases, each "
        "from an observation in the archive": True,
        f"that {shipped} files of specs, backends and waivers are the published ones of this "
        "version": True,
        f"that {author_files} files of the author are the published ones that you "
        "named": author_files and has_files,
        f"that {proven} cases could not run, if the facts of the machine are true": proven,
        "the totals and the JUnit report, from these outcomes": True,
        "the statement, from these outcomes and from what your profile requires": profile
        and has_profile,
        f"that {rests_on['observed_again']} cases have the same outcome, code, kernels and "
        "counters in your run": rests_on["observed_again"],
        f"that your torch computes the recorded numbers of {rests_on['computed_again']} cases in "
        "eager and float64": rests_on["computed_again"],
        f"that the holder of the key {signer[:16]} attested this archive": is_signed,
    }
    words = {
        "that the observations were made on the machines, by the torch and by the modules of "
        "backends that are named as tested, and that no such module altered what was measured "
        "(its Python, where packed, can be read)": True,
        "that the worker of this program measured each observation, which only the author's "
        "machine can repeat": True,
        "that no case was run more often than the journal says": True,
        "the other facts of the machine (driver, memory, versions), its variables, and "
        "options that change no verdict": True,
        "what a case printed, its notes, attachments and tracebacks, and which worker and GPU "
        "ran it": True,
        f"the times: when the run began ({header.started}), by which waivers end, and how "
        "long each case took": True,
        f"that {len(unshown)} cases ended as recorded, without an observation (crash, "
        "timeout, error)": unshown,
        f"of these, {waived} that a waiver excuses: such a case may have failed otherwise": waived,
        f"that what {rests_on['unavailable']} cases need was missing on that machine, of which no "
        "fact is recorded": rests_on["unavailable"],
        "the facts of the machine by which the profile does not require some cases": any(
            record.conditions for record in header.profile
        ),
        f"the content of {author_files} files of the author (specs, backends, waivers, profile): "
        "name their published form with --specs": author_files and not has_files,
        f"what the profile {profile} requires, and so its statement: name yours with --profile": profile  # noqa: E501 - Python 3.11 breaks no line within a field
        and not has_profile,
        f"that the {len(header.merged)} parts of the run were made on machines of the same "
        "kind": len(header.merged) > 1,
        f"who made the archive: {signature}": not is_signed,
    }
    return tuple(text for text, holds in follows.items() if holds), tuple(
        text for text, holds in words.items() if holds
    )


def _is_shown(result: CaseResult) -> bool:
    return "observation.json" in result.evidence


def _machines_of(run: Run) -> list[Mapping[str, str]]:
    facts = [
        part.node or run.header.environment
        for result in run.results
        for part in (result, *result.attempts)
        if part.folder
    ]
    return facts or [run.header.environment]


def modules_of(run: Run) -> dict[str, str]:
    """Return the modules of backends that the facts of the machines name, each with its fact."""
    return {
        text.partition(",")[0]: text
        for facts in _machines_of(run)
        for name, text in facts.items()
        if name.endswith(".module")
    }


def _sources(place: Path) -> dict[str, dict[str, bytes]]:
    """Return the packed Python of modules, by their packages."""
    root, sources = place / MODULE, dict[str, dict[str, bytes]]()
    for path in sorted(root.rglob("*")):
        if path.is_file():
            name = path.relative_to(root)
            package = sources.setdefault(name.parts[0].removesuffix(".py"), {})
            package[str(name)] = path.read_bytes()
    return sources


_OF_MACHINE = "device arch cpu driver torch torch_git triton cuda hip changed_files name".split()
_NO_SETTINGS = ("summary", "requires", "joins", "only_tags")


def tested_of(run: Run, then: "Then", place: Path) -> Iterator[str]:
    """Yield what was tested: each machine, the modules of backends, and each backend of the author
    as its entry says.
    """
    for facts in {str(facts): facts for facts in _machines_of(run)}.values():
        shown = {name: facts[name] for name in _OF_MACHINE if name in facts}
        shown |= {name: text for name, text in facts.items() if "." in name}  # of vendors' modules
        yield ", ".join(f"{name} {text}" for name, text in shown.items())
        if "changed_files" not in facts:
            yield "whether its torch is unmodified was not measured"
    sources = _sources(place)
    for module in modules_of(run):
        package = module.partition(".")[0]
        yield f"the Python of the module {module} is " + (
            f"in the archive: {len(sources[package])} files below {MODULE}"
            if package in sources
            else "not in the archive: an installed package (named above), large, or not read"
        )
    for name in sorted({result.backend for result in run.results}):
        backend = then.suite.backends.by_name.get(name)
        if backend and then.names.get(backend.document.file, SHIPPED).startswith(f"{OWN}/"):
            entry = backend.document.data[name]
            settings = (
                f"{key} {json.dumps(value, default=str)}"
                for key, value in entry.items()
                if key not in _NO_SETTINGS
            )
            yield f"backend {name} of {then.names[backend.document.file]}: {', '.join(settings)}"


_MARK = ".git"
"""What makes the folder of the author's files a project: defaults are looked for up to there."""

_LARGEST = 64 << 20
"""The maximum size in bytes of a published file."""


_SECONDS = 20
"""How long the facts of a case may be compared: those of an honest one take milliseconds."""

_NO_RUN = (ValueError, TypeError, LookupError, RecursionError, ArithmeticError)


def verified(
    data: bytes,
    *,
    profile: str | None = None,
    specs: Sequence[Path] = (),
    key: "Ed25519PublicKey | None" = None,
    against: NamedRun | None = None,
    recompute: int = 0,
    seed: int = 0,
) -> Verification:
    """Return what is found in the bytes of an archive, which is untrusted.

    It is compared with the reader's own run (``against``), and of ``recompute`` cases that ``seed``
    draws eager is computed again: that runs the Python of their specs.
    """
    verification = Verification()
    try:
        members = unpacked(data)
    except BadArchive as error:
        verification.finds("archive", str(error))
        return verification
    if missing := sorted(FIXED - members.keys()):
        verification.finds("archive", f"the member '{missing[0]}' is missing")
        return verification
    signer = archive.signer_in(members[ATTESTATION])
    if ENVELOPE in members:
        if why := archive.why_not_signed(members[ENVELOPE], members[ATTESTATION], key):
            verification.finds("signature", f"{ENVELOPE}: {why}")
    elif signer:
        verification.finds(
            "signature",
            f"the attestation names the key {signer[:16]}, and its signature is missing",
        )
    elif key is not None:
        verification.finds("signature", "it is not signed, and --key asks for a signature")
    with tempfile.TemporaryDirectory(prefix="torch-conformance-verify-") as scratch:
        place = Path(scratch)
        write_members(members, place)
        try:
            run = read_run(place / JOURNAL)
            verification.findings += (*_of_run(members, run, place),)
            if run.footer is None or run.header.version != __version__:
                verification.run = run.header.run_id
                why = (
                    f"it is of version {run.header.version}, and this is {__version__}: verify it "
                    "with that version"
                )
                verification.unjudged = (why,) if run.footer is not None else ()
            else:
                _judge_again(
                    verification,
                    run,
                    place,
                    signer=signer,
                    is_signed=key is not None,
                    profile=profile,
                    specs=specs,
                    against=against,
                    recompute=recompute,
                    seed=seed,
                )
        except JournalError as error:
            verification.finds("journal", str(error))
        except PatternTooSlow:
            verification.finds("facts", f"comparing those of a case takes more than {_SECONDS} s")
        except _NO_RUN as error:  # values of the right type that no run writes
            verification.finds(
                "journal",
                f"its content is not that of a run: {type(error).__name__}: "
                f"{one_line(str(error))[:200]}",
            )
    return verification


def write_members(members: Mapping[str, bytes], place: Path) -> None:
    """Write members to a folder, by the names that the journal has for them."""
    for member, content in members.items():  # their names were checked when they were read
        path = place / name_of(member)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as stream:
            stream.write(content)


def _of_run(members: Mapping[str, bytes], run: Run, place: Path) -> Iterator[Finding]:
    """Yield what contradicts the journal, without a judge."""
    if run.footer is None or run.footer.interrupted or run.header.shard:
        yield Finding("journal", "the run did not end, or is a part of a run")
    if any(
        json.dumps(json.loads(line)).encode("ascii") != line
        for line in members[JOURNAL].splitlines()
    ):
        yield Finding("journal", "a line is not written as 'submit' writes it")
    if run.header.started[:10] > (datetime.now(UTC) + timedelta(days=1)).date().isoformat():
        yield Finding("journal", "the run begins in the future")
    if run.footer is None:
        return
    begun = [run.header.started, *(result.begun for result in run.results)]
    if max(moment[:19] for moment in begun) > run.footer.ended[:19] or any(
        result.seconds < 0 for result in run.results
    ):
        yield Finding("journal", "the run, or a case, began after its end")
    expected = archive.statement_of(run, members, archive.signer_in(members[ATTESTATION]))
    yield from (
        Finding("attestation", why) for why in archive.differences(members[ATTESTATION], expected)
    )
    if members[JUNIT] != document_of(run):
        yield Finding("report", "it is not the one that the journal gives")
    used: set[str] = set()
    for result in run.results:
        yield from (
            Finding("evidence", problem.removeprefix(f"{place}/"))
            for problem in alterations(place, result)
        )
        used |= {
            f"{part.folder}/{name}" for part in (result, *result.attempts) for name in part.evidence
        }
    for name in sorted(
        member for member in members if member.startswith("cases/") and member not in used
    ):
        yield Finding("evidence", f"no case was judged by '{name}'")


def _judge_again(
    verification: Verification,
    run: Run,
    place: Path,
    *,
    signer: str,
    is_signed: bool,
    profile: str | None,
    specs: Sequence[Path],
    against: NamedRun | None,
    recompute: int,
    seed: int,
) -> None:
    """Complete what is found of a run whose members lie in the folder ``place``."""
    header, record = run.header, next(iter(run.header.profile), None)
    published = [*specs, *_own_files(profile)]
    verification.finds(
        "files", *problems_of_files(header, place, published), *_of_modules(run, place)
    )
    verification.finds("cases", *stolen(run.results))
    rests_on = {
        "observations": sum(result.is_executed and _is_shown(result) for result in run.results),
        "unshown": sum(bool(result.folder) and not _is_shown(result) for result in run.results),
        "unavailable": sum(result.outcome is Outcome.UNAVAILABLE for result in run.results),
        "observed_again": 0,
        "computed_again": 0,
    }
    machines = (header.environment, *(result.node for result in run.results if result.node))
    contradictions = (of_machine(facts, header.started[:10]) for facts in machines)
    verification.finds("machine", *dict.fromkeys(itertools.chain.from_iterable(contradictions)))
    then = None
    try:
        then = loaded(header, run.results, place)
    except NotOfTheRun as error:
        verification.finds("files", str(error))
        verification.unjudged += (
            "the cases cannot be loaded: the journal names other files than there are",
        )
    except (InvalidSpecs, UsageError, ValueError) as error:
        why = f"the cases cannot be loaded here: {_first(error)}"
        verification.unjudged += (why.replace(f"{place}/", ""),)
    if then is not None:
        for finding in _of_cases(run, record, then, place):  # what is found before an error stays
            verification.findings += (finding,)
        rests_on["unavailable"] -= _shown_by_facts(run, then)
    # the reader's profile to compare with: the one that is named, or the shipped one of the name
    mine = profile or (
        record.name if record is not None and record.name in shipped_profiles() else ""
    )
    if record is None and mine:
        verification.finds(
            "profile", f"the run is not one of a profile, and --profile asks for {mine}"
        )
    elif record is not None:
        verification.finds("profile", *_refused_options(header, record))
        try:
            if mine:
                verification.findings += (*_of_profile(mine, header, record, run.results, place),)
        except (InvalidSpecs, NotOfTheRun, UsageError) as error:
            verification.unjudged += (f"the profile {mine} cannot be read here: {_first(error)}",)
    # an archive with a finding is worth no comparison, and its Python is not run
    if then is not None and not (verification.findings or verification.unjudged):
        required = _required_of(header, run.results)
        if against is not None:
            agreement = compared(NamedRun("the archive", run, place), against, required)
            rests_on["observed_again"] = agreement.agree - len(agreement.not_compared)
            _add_agreement(verification, agreement)
        if recompute:
            required_results = [
                entry for entry in run.results if entry.is_executed and entry.case_id in required
            ]
            recomputation = recomputed(
                then.suite, then.cases, required_results, place, count=recompute, seed=seed
            )
            rests_on["computed_again"] = len(recomputation.cases)
            _add_recomputation(verification, recomputation, header.environment.get("torch", "0"))
    verification.run, verification.signer = header.run_id, signer
    follows, verification.words = claims_of(
        run,
        rests_on,
        signer=signer,
        is_signed=is_signed,
        has_files=bool(published),
        has_profile=bool(mine),
    )
    if then is not None and not (verification.findings or verification.unjudged):
        verification.tested, verification.follows = tuple(tested_of(run, then, place)), follows
        verdicts = (verdict for case in run.results for verdict in case.verdicts)
        weak = (f"{entry.position}: {entry.observed}" for entry in verdicts if entry.kind == WEAK)
        verification.weak = tuple(dict.fromkeys(weak))
        verification.totals = totals(run.results)
        verification.statement = profile_statement(header, run.results)
        verification.rests_on = rests_on
        verification.code_of_cases = conclusion_of(header, run.results)[0]


def _own_files(profile: str | None) -> list[Path]:
    """Return the files of a reader's own profile, which must be those of the run too; none of a
    shipped one.
    """
    if profile is None or profile in shipped_profiles():
        return []
    profile_of_author, shipped = read_profile(profile), folder("specs").resolve()
    paths = (
        profile_of_author.document.path,
        *profile_of_author.specs,
        *profile_of_author.backends,
        *profile_of_author.waivers,
    )
    return [path for path in paths if not Path(os.path.realpath(path)).is_relative_to(shipped)]


def _of_modules(run: Run, place: Path) -> Iterator[str]:
    """Yield the packages whose packed Python is not that of a tested module."""
    for package, files in _sources(place).items():
        if not any(
            fact.startswith(described(module, files))
            for module, fact in modules_of(run).items()
            if module.partition(".")[0] == package
        ):
            yield f"the files of {package} below {MODULE} are not those of a tested module"


def _of_cases(
    run: Run, record: ProfileRecord | None, then: "Then", place: Path
) -> Iterator[Finding]:
    """Yield how the results contradict the cases, loaded again, and judging their facts again."""
    header, suite = run.header, then.suite
    backends = suite.backends.by_name
    if problem := rejudge.impossible_on_machine(run.results, header.environment, backends):
        yield Finding("machine", problem)
    for result in run.results:
        yield from problems_of_case(result, header, then, place)
    digests = {str(case.id): digest_of(case) for case in suite.cases}
    if record is not None:
        entry = backends.get(record.compiler)
        expected = record.compiler, entry.asked if entry else ""
        if (header.options.get("backend", ""), record.proof) != expected:
            yield Finding(
                "profile",
                "the backend of the run's profile is not that of --backend, or its entry says "
                "another proof",
            )
        if record.digest != digest_of_requirements(record, digests):
            yield Finding("profile", "the digest of the run's profile is not that of its cases")
    selected: dict[str, str] = {
        result.case_id: digests.get(result.case_id, "") for result in run.results
    }
    if header.selection != digest_of_selection(selected):
        yield Finding("cases", "its cases are not those that the run selected")


def _shown_by_facts(run: Run, then: "Then") -> int:
    """Return how many cases could not run by the recorded facts of the one machine of the run."""
    if not _is_of_one_machine(run.header):
        return 0
    return sum(
        reasons_of(case, run.header.environment).get(result.reason, False)
        for result in run.results
        if result.outcome is Outcome.UNAVAILABLE and (case := then.cases.get(result.case_id))
    )


def _refused_options(header: RunHeader, record: ProfileRecord) -> Iterator[str]:
    """Yield the options of a run that do not go with its profile."""
    for name, (default, why) in REFUSED.items():
        option = name.replace("_", "-")
        text = header.options.get(option)
        is_the_profiles = name == "paths" or (name == "backend" and record.compiler)
        if not is_the_profiles and text is not None and text != option_text(default):
            yield f"the run has --{option} {text}, which does not go with a profile: {why}"


def _add_agreement(verification: Verification, agreement: Agreement) -> None:
    verification.against = agreement
    if agreement.differ:
        count = len({difference.case for difference in agreement.differ})
        verification.finds("against", f"{count} required cases differ, see below")
    elif not agreement.agree:
        verification.unjudged += ("no required case was executed in the archive and in your run",)


def _add_recomputation(
    verification: Verification, recomputation: Recomputation, torch: str
) -> None:
    """Add numbers that differ: a finding where the reader has the minor of ``torch``, that of the
    run.
    """
    verification.recomputed = recomputation
    if recomputation.differ:
        why = f"{len(recomputation.differ)} numbers differ, see below"
        if release(torch)[:2] == release(recomputation.torch)[:2]:
            verification.finds("numbers", why)
        else:
            verification.unjudged += (f"{why}: torch {torch} and {recomputation.torch} may differ",)
    elif not recomputation.cases:
        verification.unjudged += ("no number of eager's could be computed again",)


def _required_of(header: RunHeader, results: Sequence[Redacted]) -> list[str]:
    """Return the ids of the required cases; all without a profile."""
    if (statement := profile_statement(header, results)) is None:
        return [str(result.case_id) for result in results]
    spared = {case_id for level in statement.levels for case_id in level.not_required}
    return [name for name in header.profile[0].required if name not in spared]


def _first(error: Exception) -> str:
    """Return the first problem of an error on one line."""
    return one_line(
        str(
            error.diagnostics[0] if isinstance(error, InvalidSpecs) and error.diagnostics else error
        ).splitlines()[0]
    )


# -- the files that the run read -------------------------------------------------------------------


class NotOfTheRun(Exception):
    """The journal names a file that the submission does not have, or that is not what the run
    read.
    """


@dataclass(frozen=True, kw_only=True)
class Then:
    """The specs, waivers and surroundings by which the run was judged, loaded again."""

    suite: Suite
    waivers: Waivers
    surroundings: Surroundings
    names: Mapping[str, str]
    """The name in the submission of each file that was loaded, by its name in messages."""
    challenge: str
    """The text of --challenge."""

    @functools.cached_property
    def cases(self) -> Mapping[str, Case]:
        """The cases by id."""
        return {case.id: replace(case, challenge=self.challenge) for case in self.suite.cases}


def problems_of_files(header: RunHeader, place: Path, published: Sequence[Path]) -> Iterator[str]:
    """Yield how the files of a submission, below ``place``, differ from its journal and from the
    published ones.
    """
    there = {
        str(path.relative_to(place)): path
        for path in sorted((place / "files").rglob("*"))
        if path.is_file() and path.name != _MARK and not path.is_relative_to(place / MODULE)
    }
    for name in sorted(there.keys() ^ header.specs.keys()):
        yield (
            f"'{name}' is "
            f"{'in the archive, and the run did not read it' if name in there else 'missing: the run read it'}"  # noqa: E501 - Python 3.11 breaks no line within a field
        )
    for name in sorted(there.keys() & header.specs.keys()):
        if digest(there[name].read_bytes()) != header.specs[name]:
            yield f"'{name}' is not the file that the run read"
    by_content = _published(published)
    for name in sorted(header.specs):
        if name.startswith(f"{SHIPPED}/"):
            path = folder("specs") / name.removeprefix(f"{SHIPPED}/")
            if (
                ".." in Path(name).parts
                or not path.is_file()
                or digest(path.read_bytes()) != header.specs[name]
            ):
                yield f"'{name}' is not a published file of this version"
        elif not name.startswith(f"{OWN}/"):
            yield f"'{name}' is not a file of a submission"
        elif published:
            # a file with this content in a folder of the same name: one path ends with the other
            mine = Path(name.removeprefix(f"{OWN}/")).parts
            same = [
                path.parts for path in by_content.get((Path(name).name, header.specs[name]), ())
            ]
            if not any(mine[-len(parts) :] == parts[-len(mine) :] for parts in same):
                yield f"'{name}' is not one of the published files that you named"


def _published(paths: Sequence[Path]) -> dict[tuple[str, str], list[Path]]:
    """Return the files below paths by their last part and sha256."""
    by_content: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"--specs {shown_path(path)}: no such file or folder")
        files = (
            [path]
            if path.is_file()
            else [file for file in sorted(path.rglob("*")) if file.is_file()]
        )
        for file in files:
            if file.suffix in (".yaml", ".yml") and file.stat().st_size <= _LARGEST:
                relative = Path(file.name) if path.is_file() else file.relative_to(path)
                by_content.setdefault((file.name, digest(file.read_bytes())), []).append(relative)
    return by_content


def loaded(header: RunHeader, results: Sequence[CaseResult], place: Path) -> Then:
    """Load what the run read; raise ``NotOfTheRun``, or ``InvalidSpecs`` or ``UsageError`` where it
    cannot be loaded here.
    """
    (place / OWN).mkdir(parents=True, exist_ok=True)
    (place / OWN / _MARK).touch()
    specs: dict[str, SpecPath] = {}
    for result in results:
        path, depth = _file(header, result.spec, place), len(Path(result.area).parts)
        if depth >= len(path.parents):
            raise NotOfTheRun(
                f"'{result.spec}' is not in the folder '{result.area}', which the run names"
            )
        specs[result.spec] = SpecPath(path=path, root=path.parents[depth])
    torch = surroundings_of(header.environment.get("torch"), None)
    suite = load_specs(list(specs.values()), _files(header, "backends", place), torch)
    waiver_files = load_waivers(_files(header, "waivers", place), suite.backends)
    of_backends = (
        file
        for backend in suite.backends.by_name.values()
        for file in (backend.document, backend.claims.file, backend.expected[0])
        if file
    )
    documents = [*suite.documents, *of_backends, *waiver_files.documents]
    names = {document.file: _name(document, place) for document in documents}
    other = sorted(
        names[document.file]
        for document in documents
        if header.specs.get(names[document.file]) != document.digest
    )
    if other:
        raise NotOfTheRun(
            f"'{other[0]}' decides how the cases are judged, and the run did not read it as "
            "it is here"
        )
    day = date.fromisoformat(header.started[:10])
    return Then(
        suite=suite,
        waivers=Waivers(waiver_files, day),
        surroundings=rejudge.surroundings_of_record(header.environment),
        names=names,
        challenge=header.options.get("challenge", ""),
    )


def _file(header: RunHeader, name: str, place: Path) -> Path:
    """Return where a file of the submission is here; raise ``NotOfTheRun`` for a name that is
    none.
    """
    if name not in header.specs:
        raise NotOfTheRun(f"'{one_line(name)}' is not a file that the run read")
    return (
        folder("specs") / name.removeprefix(f"{SHIPPED}/")
        if name.startswith(f"{SHIPPED}/")
        else place / name
    )


def _files(header: RunHeader, option: str, place: Path) -> list[Path]:
    """Return where the files are that an option of the run named."""
    return [_file(header, str(path), place) for path in rejudge.files_of(header, option)]


def _name(document: Document, place: Path) -> str:
    """Return the name in the submission of a file that was loaded."""
    path, shipped = Path(os.path.realpath(document.path)), folder("specs").resolve()
    if path.is_relative_to(shipped):
        return f"{SHIPPED}/{path.relative_to(shipped)}"
    real = Path(os.path.realpath(place))
    return str(path.relative_to(real)) if path.is_relative_to(real) else document.file


def stolen(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield each file of the author whose cases have the ids of a published spec."""
    shipped = folder("specs")
    for spec, area, name in sorted({(result.spec, result.area, result.name) for result in results}):
        if spec.startswith(f"{OWN}/") and any(
            (shipped / area / f"{name}{suffix}").is_file() for suffix in (".yaml", ".yml")
        ):
            yield f"'{spec}' takes the ids of the published spec {area}/{name}"


# -- cases -----------------------------------------------------------------------------------------


WORDS = (
    *"seconds begun warmup_begun warmup context cpu isolation folder worker gpus node".split(),
    *"stdout stderr code attachments notes evidence attempts".split(),
)
"""The entries of a line of the journal that its case and its facts do not give."""

_CHECKS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "case_id",
            *"spec summary options digest covers tags target requires repro benches_left_out".split(),  # noqa: E501 - a word without a break
        ),
        "cases",
    ),
    **dict.fromkeys(("phases", "timings"), "facts"),
}
"""Which check compares an entry of a line; ``verdicts`` compares the others."""


def problems_of_case(
    result: CaseResult, header: RunHeader, then: Then, place: Path
) -> Iterator[Finding]:
    """Yield how a result contradicts its case, its facts, and what judging them again gives; the
    members lie in the folder ``place``.
    """
    case = then.cases.get(result.case_id)
    if case is None:
        yield Finding("cases", f"{result.case_id}: it is not a case of the files")
        return
    said, claimed = (
        {why for why in reasons if why.startswith(NOT_CLAIMED)}
        for reasons in (result.reason.split("; "), case.missing_names)
    )
    if said != claimed and result.outcome is not Outcome.NOT_RUN:
        yield Finding(
            "cases",
            f"{result.case_id}: the run and the entry of its backend disagree on whether it "
            "is claimed",
        )
        return
    if result.failure_type == "unavailable" and _is_of_one_machine(header):
        required = header.options.get("require", "").split()
        reasons = reasons_of(case, header.environment)
        starts = (
            [""]
            if result.outcome is Outcome.UNAVAILABLE
            else [f"--require {name}: " for name in required]
        )
        gives = [f"{start}{why}" for why in reasons for start in starts]
        if not any(
            result.reason == why or (why[-1] == " " and result.reason.startswith(why))
            for why in gives
        ):
            yield Finding(
                "machine",
                f"{result.case_id}: the case, or the machine, gives no such reason: "
                f"{result.reason}",
            )
    backend = then.suite.backends.by_name[case.backend]
    recorded = {
        name: getattr(result, name)
        for name in (
            *WORDS,
            "waivers",
            "level",
            "phase",
            "phases",
            "timings",
            "eager_operators",
            "by_aten",
            "operators",
        )
    }
    judged = Judged(
        outcome=result.outcome,
        reason=result.reason,
        failure_type=result.failure_type,
        verdicts=result.verdicts,
        position=result.position,
    )
    for part, now in rejudge.rejudged_parts(case, backend, then.surroundings, result, place):
        if part is result and isinstance(now, Judged) and not rejudge.is_too_slow(now.verdicts):
            files = RecordedFiles(place / result.folder, result.evidence)
            facts = read_facts(files.observation(), files.code)
            problems = (
                _disagreements(case, backend, result, header, facts)
                if result.outcome is not Outcome.ERROR
                else ()
            )
            yield from (Finding("facts", f"{result.case_id}: {problem}") for problem in problems)
            excused = apply(
                now,
                case,
                rejudge.surroundings_of_part(case, backend, result, then.surroundings),
                then.waivers,
            )
            recorded["waivers"] = excused.waivers
            if not result.attempts:
                timings = tuple(
                    timing
                    for step in facts.steps
                    if step.bench is not None
                    for timing in step.bench.timings
                )
                judged = excused
                recorded = {name: recorded[name] for name in WORDS} | {
                    "phases": phases_of(facts),
                    "timings": timings,
                }
        if problem := now if isinstance(now, str) else rejudge.difference(case, part, now):
            yield Finding("verdicts", f"{result.case_id}: {problem}")
            return
    left_out = len(without_benches(case).left_out) if result.benches_left_out else 0
    expected = with_case(
        case,
        judged,
        **recorded,
        repro=archive.repro(header.options, case.id),
        benches_left_out=left_out,
    )
    said = encode(result)
    gives = archive.changed(
        encode(expected),
        lambda text, key: then.names.get(text, text) if key in _FILES else text,
    )
    # a traceback has other names of files in a submission, and so has a reason that names a waiver
    free = (
        {"position"}
        if expected.outcome is Outcome.ERROR
        else {"reason"}
        if result.waivers
        else set()
    )
    for name in said:
        if name not in free and not _agree(said[name], gives[name]):
            pairs = (
                zip(said["verdicts"], gives["verdicts"], strict=True) if name == "verdicts" else ()
            )
            where = next(
                (
                    f"{old['kind']} at line {old['position']['line']}"
                    for old, new in pairs
                    if not _agree(old, new)
                ),
                "",
            )
            part_name = f"the text of {where}" if where else f"its {name.replace('_', ' ')}"
            yield Finding(
                _CHECKS.get(name, "verdicts"),
                f"{result.case_id}: {part_name} is not what the files and judging it again give",
            )


def reasons_of(case: Case, facts: Mapping[str, str]) -> dict[str, bool]:
    """Return why a case cannot run on a machine of which these facts are recorded, each with
    whether it follows from them.

    What is not recorded may be missing, and follows a last space.
    """
    numbers = {
        name: int(facts[name])
        for name in ("gpus", "gpu_memory", "sms")
        if facts.get(name, "").isdecimal()
    }
    bare = Machine(
        python=rejudge.surroundings_of_record(facts).python or (),
        torch=facts.get("torch"),
        release=release(facts["torch"]) if "torch" in facts else None,
        builds={build.version: facts.get(build.version) for build in builds()},
        gpus=numbers.get("gpus"),
        gpu_memory=numbers.get("gpu_memory"),
        arch=facts.get("arch"),
        found={"triton": (facts["triton"],)} if facts.get("triton") else {},
        facts={**facts, **numbers},
        packages={},
    )
    reasons = {"this machine lacks a fact: ": False} if "facts." in str(case.options) else {}
    for needs in ((), *((need,) for need in case.requires)):
        arguments = [need.argument or "" for need in needs]
        whole = replace(
            bare,
            packages=dict.fromkeys(re.findall(r"\w+", " ".join(arguments)), True),
            answers=dict.fromkeys(arguments, ""),
        )
        whole = replace(
            whole,
            targets=dict.fromkeys([*arguments, *map(simulated, arguments)], " "),
            found={**bare.found, "ck": ("ck4inductor",)},
        )
        for machine in (bare, whole):
            verdict = availability_of(replace(case, requires=needs), machine)
            if verdict.availability is Availability.NO:
                reasons[verdict.reason] = machine is whole
    return reasons


_FILES = ("file", "spec")
"""Keys of positions and results whose values are names of files."""


def _agree(recorded: object, gives: object) -> bool:
    """Whether JSON of a line is what it should be; what is masked may differ."""
    match recorded, gives:
        case str(), str():
            return rejudge.is_text(recorded, gives)
        case list(), list():
            return len(recorded) == len(gives) and all(map(_agree, recorded, gives))
        case dict(), dict():
            free = {"raised": {"detail"}, "error": {"detail", "position"}}.get(
                gives.get("kind", ""), set()
            )
            return recorded.keys() == gives.keys() and all(
                _agree(recorded[key], gives[key]) for key in recorded.keys() - free
            )
    return bool(recorded == gives)


def _disagreements(
    case: Case, backend: Backend, result: CaseResult, header: RunHeader, facts: Facts
) -> Iterator[str]:
    if case.target or facts.nonsense or facts.error is not None:
        return
    whole = without_benches(case) if result.benches_left_out else case
    steps = list(carried_out(whole, facts.steps))
    if facts.digest != result.digest:
        yield "its observation is of a case with another content"
    pieces = {
        f"code-{number}-{piece}.txt"
        for number, step in enumerate(facts.steps)
        for piece in range(step.code_pieces)
    }
    if result.evidence.keys() - {OBSERVATION, SERVICES} != pieces:
        yield "its pieces of code are not those of its observation"
    if _is_of_one_machine(header):  # else folders and GPUs have the numbers of other runs
        count = header.environment.get("gpus", "")
        if (
            result.node
            or result.isolation not in ("fork", "process")
            or (count.isdecimal() and {*result.gpus} - {*range(int(count))})
        ):
            yield (
                f"its worker has another node, isolation ({result.isolation}) or GPU "
                f"{[*result.gpus]} than the machine of the run"
            )
        texts = "".join(code for step in facts.steps for code in step.code)
        if other := {*re.findall(r"\.\.\./scratch/([0-9]{5,9})/", texts)} - {
            result.folder.rpartition("/")[2]
        }:
            yield f"its code was generated in the folder of case {min(other)}"
    with time_limit(_SECONDS):
        yield from dict.fromkeys(
            disagreements(case, backend, result.node or header.environment, facts, steps)
        )


def _is_of_one_machine(header: RunHeader) -> bool:
    return not header.merged and header.options.get("executor", "local") == "local"


# -- the profile -----------------------------------------------------------------------------------


def _of_profile(
    name: str, header: RunHeader, record: ProfileRecord, results: Sequence[CaseResult], place: Path
) -> Iterator[Finding]:
    """Yield what the reader's profile of a name, from the reader's files and of the torch of the
    run, requires otherwise.

    The backend of a profile for any compiler is the author's.
    """
    profile = for_compiler(read_profile(name), [record.compiler] if record.compiler else [])
    entries = _files(header, "backends", place) if profile.compiler else []
    suite = load(
        profile.specs,
        (*profile.backends, *entries),
        surroundings_of(header.environment.get("torch"), None),
    )
    resolved = cases_of(profile, suite)
    mine = resolved.record
    title = (
        f"it is not {'the shipped' if name in shipped_profiles() else 'your profile'} {mine.name} "
        f"{mine.version}"
    )
    problems = [
        f"{title}: the {what} of the run's is '{theirs[:40]}', not '{ours[:40]}'"
        for what in ("name", "version", "digest", "torch")
        if (theirs := getattr(record, what)) != (ours := getattr(mine, what))
    ]
    levels, own_levels = (
        {
            level.name: (
                *map(frozenset, (level.required, level.optional)),
                level.most_waived,
                level.most_waived_because,
            )
            for level in profile.levels
        }
        for profile in (record, mine)
    )
    if left_out := sorted(set(mine.required) - set(record.required)):
        problems.append(
            f"the run's profile leaves out {len(left_out)} required cases: {left_out[0]}"
        )
    elif levels != own_levels or any(
        getattr(record, key) != getattr(mine, key)
        for key in ("conditions", "most_by_aten", "without_waivers")
    ):
        problems.append(
            "the run's profile has other levels, other cases in one, other conditions, or "
            "another limit of waived cases or of those that ATen computed"
        )
    if more := set(record.waivers) - set(mine.waivers):
        problems.append(
            f"the run's profile permits {len(more)} waivers that yours does not: "
            f"{min(waiver.cases for waiver in more)}"
        )
    permitted = {document.digest for document in resolved.waivers.documents}
    for file in map(str, rejudge.files_of(header, "waivers")):
        if header.specs.get(file) not in permitted:
            problems.append(
                f"the run read the waivers of '{file}', which the profile does not permit"
            )
    yield from (Finding("profile", problem) for problem in problems)
    digests = {str(case.id): digest_of(case) for case in resolved.cases}
    ids = {str(result.case_id) for result in results}
    for what, cases in (
        ("leaves out {} cases", digests.keys() - ids),
        ("has {} cases that are not part", ids - digests.keys()),
    ):
        if cases:
            yield Finding(
                "profile", f"the run {what.format(len(cases))} of the profile: {min(cases)}"
            )
    for result in results:
        if result.digest != digests.get(result.case_id, result.digest):
            yield Finding(
                "cases", f"{result.case_id}: it is not the case of this name in your files"
            )


# -- the command -----------------------------------------------------------------------------------


_SHOWN = 20
"""How many findings of one check are printed; ``--json`` has all of them."""


@frozen
class VerifyOptions:
    """The options of ``verify``."""

    archive: Path = argument("ARCHIVE", "the file that 'submit' wrote", Path)
    profile: str | None = profile_option(
        "state whether the run conforms to this profile of yours, not to the author's copy of it"
    )
    specs: tuple[Path, ...] = several(
        "PATH",
        "published files of the author (specs, backends, waivers, profile) that those in the "
        "archive must equal: a file or a folder; the "
        "shipped ones are always compared",
        Path,
    )
    key: Path | None = option(
        "FILE",
        "the author's public key (Ed25519, PEM): the archive must have a valid signature of it",
        reads=Path,
    )
    against: str | None = option(
        "RUN",
        "compare the required cases with those of your own run of the same profile (its folder, "
        "its id or latest), or of another archive",
    )
    recompute: int = option(
        "N",
        "compute eager and float64 of N required cases again, by the torch of this environment on "
        "the CPU; this runs the Python of their specs",
        0,
        natural,
    )
    seed: int | None = option(
        "SEED", "draw the cases of --recompute as this number does", reads=natural
    )
    json: bool = flag("print one object")


def main(options: VerifyOptions) -> ExitCode:
    """Verify an archive; exit 1 where something contradicts it, else as its statement or its
    results say.
    """
    key = read_key(options.key, private=False) if options.key else None
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="torch-conformance-against-") as scratch:
        verification = verified(
            _bytes_of(options.archive),
            profile=options.profile,
            specs=options.specs,
            key=key,
            against=_own_run(options.against, Path(scratch), options.profile, options.specs)
            if options.against
            else None,
            recompute=options.recompute,
            seed=seed,
        )
    if options.json:
        output.document(as_json(verification))
    else:
        for line in _lines(verification):
            output.raw(f"{line}\n")
    if verification.findings:
        count = len(verification.findings)
        output.note(
            f"NOT VERIFIED: {count} contradiction{'' if count == 1 else 's'}; nothing of this "
            "archive is shown"
        )
    elif verification.unjudged:
        output.note(f"NOT VERIFIED: {_shown(verification.unjudged[0])}")
    else:
        stated = f", and {verification.statement.words}" if verification.statement else ""
        rests_on = verification.rests_on
        count, observed_again = rests_on["observations"], rests_on["observed_again"]
        whose = "which is the author's word"
        if observed_again:
            whose = f"also observed by an independent run of {observed_again} cases, numbers aside"
            whose += f"; of the other {count - observed_again} it is the author's word" * (
                count > observed_again
            )
        output.note(
            f"consistent{stated} if the {count} observation{' is' if count == 1 else 's are'} "
            f"true, {whose}"
        )
    return verification.exit_code


def _bytes_of(path: Path) -> bytes:
    """Return the content of an archive; raise ``UsageError``."""
    return read_untrusted(path, MOST_COMPRESSED + 1, shown_path(path))


def _own_run(name: str, place: Path, profile: str | None, specs: Sequence[Path]) -> NamedRun:
    """Return the run of --against; an archive must be verified itself, and lies in the folder
    ``place`` then.
    """
    if not os.path.isfile(name):
        return read_placed(name)
    data = _bytes_of(Path(name))
    other = verified(data, profile=profile, specs=specs)
    for why in (*(finding.message for finding in other.findings), *other.unjudged):
        raise UsageError(f"--against {name}: NOT VERIFIED: {_shown(why)}")
    write_members(unpacked(data), place)
    return NamedRun(name, readable(place / JOURNAL), place)


def _lines(verification: Verification) -> Iterator[str]:
    for check, meaning in CHECKS.items():
        wrong = [finding.message for finding in verification.findings if finding.check == check]
        if wrong:
            yield f"{check}: NOT so: {meaning}"
            yield from (f"  {_shown(message)}" for message in wrong[:_SHOWN])
            yield from [f"  and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    parts = {
        "not judged:": verification.unjudged,
        "tested, as the author says:": verification.tested,
        "follows from the archive, if the observations are true:": verification.follows,
        "the author's word:": verification.words,
        "weak: cannot fail, as the specs say": verification.weak,
    }
    for title, claims in parts.items():
        if claims:
            yield title
            yield from (f"  {_shown(claim)}" for claim in claims)
    if verification.totals:
        yield "judged again: " + ", ".join(
            f"{count} {label}" for label, count in verification.totals.items() if count
        )
    if verification.statement is not None:
        yield from verification.statement.lines()
    for more in (verification.recomputed, verification.against):
        yield from map(_line, more.lines() if more else ())


def _line(text: str) -> str:
    return redacted(plain(text))


def _shown(text: str) -> str:
    return redacted(one_line(text))
