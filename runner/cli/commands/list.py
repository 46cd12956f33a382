"""``list``: the expanded cases, and whether each can run here; or what they cover of the upstream tests."""

from runner.cli.listed_cases import show
from runner.core.collector import collector_paused
from runner.core.diagnostics import InvalidSpecs, errors
from runner.core.exit_codes import ExitCode
from runner.core.options import ListOptions
from runner.language.listing import listing
from runner.system import output


def main(options: ListOptions) -> ExitCode:
    """Print the selected cases; exit 4 when there are none. What asks for more than the cases is answered by ``whole_listing``."""
    if options.profile or options.coverage or options.against or options.update or options.because:
        from runner.cli import whole_listing  # with the checks of all specs: not needed for cases that the cache has

        return whole_listing.main(options)
    with collector_paused():
        found = listing(options.paths, options.backends, use_cache=options.cache)
        for note in found.notes:
            output.note(note)
        if wrong := errors(found.problems):
            raise InvalidSpecs(wrong)
        return show(options, found.cases, found.backends)
