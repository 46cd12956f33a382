"""``list``: the expanded cases, and whether each can run here; or what they cover of the upstream tests."""

from runner.cli.listed_cases import show
from runner.core.exit_codes import ExitCode
from runner.core.options import ListOptions
from runner.language.load import load


def main(options: ListOptions) -> ExitCode:
    """Print the selected cases; exit 4 when there are none. What asks for more than the cases is answered by ``whole_listing``."""
    if options.profile or options.coverage or options.against or options.update or options.because:
        from runner.cli import whole_listing

        return whole_listing.main(options)
    suite = load(options.paths, options.backends)
    return show(options, suite.cases, suite.backends)
