"""``lsp``: serves an editor over the language server protocol."""

from importlib.util import find_spec

from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import LspOptions


def main(options: LspOptions) -> ExitCode:
    """Serve until the editor ends the connection."""
    if find_spec("pygls") is None:
        raise UsageError("lsp needs the package pygls: install the extra 'editor' (pip install 'torch-conformance[editor]')")
    from runner.cli.editor.server import serve

    serve(options.backends)
    return ExitCode.OK
