"""``list`` with a profile, a ledger or the coverage."""

from runner.cli import ledger_listing
from runner.cli.listed_cases import selected, show
from runner.cli.profiles import Loaded, levels_of, lines_of, load_profile, prospect_of
from runner.core.exit_codes import ExitCode
from runner.core.options import ListOptions
from runner.language import coverage_report, upstream
from runner.language.load import load
from runner.system import output


def main(options: ListOptions) -> ExitCode:
    """Answer what asks for more than the cases of paths. With ``--coverage``, print the coverage and exit 0."""
    wants_ledger = ledger_listing.wants_ledger(options)
    profile = load_profile(options.profile, options.paths, options.backends) if options.profile else None
    if profile is not None and not wants_ledger and not options.coverage:
        return _of_profile(options, profile)
    suite = load(options.paths, options.backends) if profile is None else profile.suite
    if wants_ledger:
        return ledger_listing.main(options, suite.cases)
    cases = selected(options, suite.cases if profile is None else profile.resolved.cases, suite.backends)
    found = upstream.coverage(cases, upstream.load())
    if options.json:
        output.document(coverage_report.as_json(found))
    else:
        output.lines(coverage_report.lines(found))
    return ExitCode.OK


def _of_profile(options: ListOptions, profile: Loaded) -> ExitCode:
    record = profile.resolved.record
    return show(
        options,
        profile.resolved.cases,
        profile.suite.backends,
        levels_of(record),
        lambda machine: lines_of(record, prospect_of(profile, machine)),
    )
