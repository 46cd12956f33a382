"""The only place where exceptions become exit codes."""

import os
from collections.abc import Callable, Sequence

from runner.machine import output
from runner.machine.output import OUT_OF_SPACE
from runner.machine.redaction import KNOWN
from runner.model.diagnostics import InvalidSpecs, JournalAltered, UsageError
from runner.model.exit_codes import ExitCode


def answered(command: Callable[[], ExitCode], argv: Sequence[str]) -> int:
    """Run a command that was given these arguments; print what it raises, and return its exit code."""
    KNOWN.learn_environment(os.environ)
    KNOWN.learn_urls(" ".join(argv))
    try:
        return int(command())
    except InvalidSpecs as error:
        for diagnostic in error.diagnostics:
            output.note(str(diagnostic))
        count = len(error.diagnostics)
        output.note(f"{count} problem{'' if count == 1 else 's'}; nothing was run")
        return ExitCode.USAGE
    except UsageError as error:
        output.notes(f"torch-conformance: {error}")
        return ExitCode.USAGE
    except JournalAltered as error:
        output.note(f"torch-conformance: {error}")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        output.note("interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:  # a bug or a full disk: uncaught, it would exit with 1, which means that a case failed
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
            output.note(f"torch-conformance: cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror}")
            return ExitCode.FAILED
        output.traceback()
        output.note(
            "torch-conformance: this is a bug of torch-conformance, not of a spec or of torch; please report it with the lines above"
        )
        return ExitCode.INTERNAL
