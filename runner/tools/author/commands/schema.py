"""``schema``: writes the JSON schemas for editors, with the names of every supported torch, or of the installed one."""

import json
from dataclasses import dataclass
from pathlib import Path

from runner.machine import output
from runner.machine.cache_dirs import folder
from runner.model.diagnostics import UsageError, one_line, shown_path
from runner.model.options import backend_files, flag, option
from runner.model.outcomes import ExitCode
from runner.tools.author.published_names import schema, schema_of_installed


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """The options of ``schema``."""

    with_torch: bool = flag("with the names of the installed torch alone: options, counters, metrics")
    out: Path | None = option("FOLDER", "write all schemas to this folder (default: print the schema of names)", reads=Path)
    backends: tuple[Path, ...] = backend_files()


_NAMES = "names.schema.json"


def main(options: SchemaOptions) -> ExitCode:
    """Print the schema of names, or write all schemas to a folder."""
    document = schema_of_installed(options.backends) if options.with_torch else schema(files=options.backends)
    if options.out is None:
        output.document(document)
        return ExitCode.OK
    count = _write(options.out, json.dumps(document, indent=1) + "\n")
    output.line(f"{count} schemas in {shown_path(options.out)}; begin a spec with:")
    output.line(f"# yaml-language-server: $schema={shown_path(options.out / 'spec.schema.json')}")
    return ExitCode.OK


def _write(out: Path, text_of_names: str) -> int:
    published = folder("schemas")
    if out.resolve() == published.resolve():
        raise UsageError(f"--out {one_line(str(out))} has the schemas of the package: choose another folder")
    texts = {file.name: file.read_text("utf-8") for file in sorted(published.glob("*.schema.json"))} | {_NAMES: text_of_names}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {one_line(str(out))}: {error.strerror}") from error
    return len(texts)
