"""Renders HTML pages of their own: one file, without a script and without a request to any host. Everything is escaped by default."""

import errno
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.report import one_line, plain
from runner.report.files import replace
from runner.system.data_dirs import folder
from runner.system.streams import OUT_OF_SPACE


def rendered(template: str, **values: object) -> str:
    """Return a page made of a template. An undefined name in it is an error."""
    import jinja2

    loader = jinja2.FileSystemLoader(folder("templates"))
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["line"] = lambda text: one_line(str(text), _LONGEST)
    environment.filters["plain"] = lambda text: plain(str(text))
    return environment.get_template(template).render(**values)


_LONGEST = 2_000
"""Characters of one line of a page."""


def write_page(option: str, path: Path, page: str) -> None:
    """Write a page to the file that an option names; raise ``UsageError`` where that is impossible, ``OSError`` on a full disk."""
    try:
        replace(path, page.encode("utf-8"))
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise
        why = "this is a folder; name a file" if error.errno == errno.EISDIR or path.is_dir() else error.strerror
        raise UsageError(f"{option} {path}: {why}") from error
