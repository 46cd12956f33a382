"""The generated pages of the documentation, and schemas: ``python -m tools.generate_docs`` writes
them below ``docs`` and ``schemas``.

- The reference: the prose is ``docs/reference/PAGE.in.md``. Directives (HTML comments on lines of
  their own) are replaced by the contents
  of the schemas and of the tables in the code.
- The command line, from its parser; the regressions of ``tools.faults.corpus``.
- The seed tests and our specs, from ``specs/_seeds.yaml`` and what the specs cover.
- The specs on the page about Python tests, which is ours but for them.
- The gallery: a page for each area of the shipped specs, with its shortest spec whole and a row for
  each spec.

The pages of ``COMMITTED`` are in git, because people read them without a site, and other pages link
to them; the gallery is made when the site is built.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import generate_schemas
from tools.faults import corpus
from tools.reports import table
from torch_conformance.cli.parser import PROGRAM, commands, parser
from torch_conformance.language import upstream
from torch_conformance.language.backends import load_backends
from torch_conformance.language.load import load
from torch_conformance.machine import schemas
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.model.case import Case

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FROM_TESTS = "guides/from-a-python-test.md"
COMMITTED = (
    "reference/language.md",
    "reference/journal.md",
    "reference/capabilities-and-backends.md",
    "reference/regressions.md",
    "reference/command-line.md",
    "reference/seed-tests.md",
    FROM_TESTS,
)


def generated(cases: Sequence[Case]) -> dict[str, str]:
    """Return the text of each generated page by its path below ``docs``."""
    names = sorted(path.name.removesuffix(".in.md") for path in folder().glob("*.in.md"))
    return {
        **{f"reference/{name}.md": reference(name) for name in names},
        "reference/command-line.md": command_line(),
        "reference/regressions.md": corpus.page(),
        "reference/seed-tests.md": seed_tests(cases),
        FROM_TESTS: with_shipped_specs((DOCS / FROM_TESTS).read_text("utf-8")),
        **{f"gallery/{name}": text for name, text in gallery(cases).items()},
    }


def main() -> None:
    """Write the schemas, then the pages that show them."""
    for name, text in generate_schemas.written().items():
        (generate_schemas.SCHEMAS / name).write_text(text, "utf-8")
    schemas.load.cache_clear()
    schemas.resolved.cache_clear()
    for name, text in generated(load([]).cases).items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


# -- the reference ---------------------------------------------------------------------------------

_DIRECTIVE = re.compile(r"<!-- (table|kinds|inputs|capabilities|backends)((?: [\w./$]+)*) -->")


def folder() -> Path:
    """Return ``docs/reference`` of the checkout."""
    return DOCS / "reference"


def reference(page: str = "language") -> str:
    """Return a page of the reference as Markdown."""
    source = (folder() / f"{page}.in.md").read_text(encoding="utf-8")
    return "\n".join(_lines(source)).rstrip() + "\n"


def _lines(source: str) -> Iterator[str]:
    for line in source.splitlines():
        match = _DIRECTIVE.fullmatch(line)
        if match is None:
            yield line
        else:
            yield from _DIRECTIVES[match[1]](*match[2].split())


def _table(path: str) -> Iterator[str]:
    """``table FILE/KEY/KEY``: the keys of the object at a path of a schema."""
    node = _node(path)
    needed = set(node.get("required", []))
    if needed == set(node["properties"]):
        needed = set()  # if all keys are required, the mark is omitted
    yield from table(
        ("key", "type", "meaning"),
        [
            (
                f"`{key}`{' (required)' if key in needed else ''}",
                _type(value),
                value.get("description", ""),
            )
            for key, value in node["properties"].items()
        ],
    )


def _node(path: str) -> Any:
    file, *keys = path.split("/")
    node = (
        schemas.resolved(file, f"/$defs/{keys[1]}")
        if keys[:1] == ["$defs"]
        else schemas.resolved(file)
    )
    for key in keys[2:] if keys[:1] == ["$defs"] else keys:
        node = node[key]
    return node


def _type(node: Any) -> str:
    words_of_it = node.get("enum") or [
        word for branch in node.get("anyOf", []) for word in branch.get("enum", [])
    ]
    if 0 < len(words_of_it) <= _MOST_WORDS or "enum" in node:
        return "one of " + ", ".join(f"`{word}`" for word in words_of_it)
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    kinds = node.get("type", "any")
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    if node.get("pattern") == schemas.TEMPLATE_PATTERN and len(words) > 1:
        words.remove("string")  # the string is a template, whose value may have any type
    return " or ".join(words)


_MOST_WORDS = 6
"""The most words that a cell lists where a template may replace them."""


def _kinds(file: str, member: str) -> Iterator[str]:
    """``kinds FILE MEMBER``: a section for each kind of step or expectation."""
    raw = schemas.load(file)["$defs"]
    for name in raw[member]["properties"]:
        if name in raw:
            yield from _kind(file, name, raw[name])


def _kind(file: str, name: str, raw: Any) -> Iterator[str]:
    node = schemas.resolved(file, f"/$defs/{name}")
    yield f"### `{name}`"
    yield ""
    yield node["description"]
    yield ""
    inner = f"{file}/$defs/{name}" + ("" if "properties" in node else "/then")
    if node.get("properties") or node.get("then", {}).get("properties"):
        yield from _table(inner)
        yield ""
    yield from _examples(file, name, [{name: example} for example in raw.get("examples", [])])
    yield ""


def _inputs() -> Iterator[str]:
    """``inputs``: the keys of an input, and examples."""
    yield from _table("inputs/$defs/input")
    yield ""
    yield from _examples("inputs", "input", schemas.load("inputs")["$defs"]["input"]["examples"])


def _examples(file: str, name: str, entries: list[Any]) -> Iterator[str]:
    yield f"<!-- examples: {file}/{name} -->"
    yield "```yaml"
    for entry in entries:
        ((key, value),) = (
            entry.items()
            if isinstance(entry, dict) and len(entry) == 1 and file != "inputs"
            else (("", entry),)
        )
        text = json.dumps(value, ensure_ascii=False)
        yield f"- {key}: {text}" if key else f"- {text}"
    yield "```"


def _capabilities() -> Iterator[str]:
    rows = [
        (f"`{name}`", f"`{capability.takes}`" if capability.takes else "", capability.summary)
        for name, capability in CAPABILITIES.items()
    ]
    yield from table(("capability", "argument", "the machine has it when"), rows)


def _backends() -> Iterator[str]:
    rows = []
    for backend in load_backends().by_name.values():
        joins = ", ".join(sorted(backend.names - {backend.name}))
        if backend.only_tags:
            joins += f", for specs tagged {' or '.join(sorted(backend.only_tags))}"
        rows.append((f"`{backend.name}`", backend.device, joins, backend.summary))
    yield from table(("backend", "device", "joins", "what it is"), rows)


_DIRECTIVES: Mapping[str, Callable[..., Iterator[str]]] = {
    "table": _table,
    "kinds": _kinds,
    "inputs": _inputs,
    "capabilities": _capabilities,
    "backends": _backends,
}


# -- the command line ------------------------------------------------------------------------------

COMMAND_LINE = """\
# Command line

`torch-conformance` and `python -m torch_conformance` are the same program. This page is generated from the parser by
`python -m tools.generate_docs`; do not edit it.

- PATH is a spec file or a folder of specs. Without one, those of `conformance.yaml` are used, else `./specs` or the
  spec files of the working folder, else the shipped specs.
- GLOB and CASE match case ids. Only `*` and `?` are special: brackets are literal, so an id matches itself. For a glob that matches nothing
  the nearest ids are printed.
- RUN is the folder of a run, its id, or `latest`.
- Results go to standard output, progress and messages to standard error. `NO_COLOR` is respected.
- [Outcomes and exit codes](exit-codes.md) has the exit codes of all commands.
"""  # noqa: E501 - text that is read by its lines


def command_line() -> str:
    """Return the page as Markdown."""
    return (
        COMMAND_LINE
        + "\n".join(
            line for name, command in _commands().items() for line in _command(name, command)
        )
        + "\n"
    )


def _commands() -> dict[str, argparse.ArgumentParser]:
    (subparsers,) = [
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(subparsers.choices)


def _command(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    yield ""
    yield f"## `{name}`"
    yield ""
    yield _escaped(command.description or "")
    yield ""
    actions = [action for action in command._actions if action.dest != "help"]
    rows = [(_argument(action), action.help or "") for action in actions]
    yield from table(("argument", "meaning"), rows)
    if name in commands():
        examples = commands()[name].examples
        yield ""
        yield from table(
            ("example", "does"),
            [(f"`{PROGRAM} {arguments}`", does) for arguments, does in examples],
        )


def _argument(action: argparse.Action) -> str:
    value = (
        ""
        if action.nargs == 0
        else str(action.metavar or "{" + ",".join(map(str, action.choices or ())) + "}")
    )
    value = _FORMS.get(str(action.nargs), "{}").format(value)
    return f"`{' '.join(filter(None, [', '.join(action.option_strings), value]))}`"


_FORMS = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
"""How an argument is written, by how often it can be given."""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


# -- the seed tests --------------------------------------------------------------------------------

SEED_TESTS = """\
# The seed tests and our specs

The seed tests are the {tests} tests, {instances} instances, of five test files of PyTorch
Inductor of 2024. Each has a row here: what our specs claim in place of each of its assertions, and
what differs in its conditions (sizes, options, what a machine needs). This page is
generated from `specs/_seeds.yaml` and from the specs by `python -m tools.generate_docs`; do not edit it. `torch-conformance list --coverage`
prints the assertions that differ on the backends of the selected cases.

| word | ours |
|---|---|
| same | claims the same. "As precise as eager" is judged by [eager's own error](../design/numbers.md), or by the dtype's tolerance without a float64 reference; for a seed that has the dtype's tolerance it counts as this |
| tighter | refuses what the seed refuses, and more; "nothing": the seed has no such claim |
| replaced | makes another claim for the same purpose |
| looser | accepts something that the seed refuses, or asks less |
| missing | has no such claim |

| | {kinds} |
|---|{rules}
| assertions | {assertions} |
| conditions | {conditions} |

The word of a row is that of its weakest assertion.

| row | test | instances | word |
|---|---|---|---|
"""  # noqa: E501 - a table


def seed_tests(cases: Iterable[Case]) -> str:
    """Return the page as Markdown."""
    seeds, of_files = upstream.seeds()
    covered = upstream.coverage(cases, upstream.load())
    parts: dict[str, list[str]] = {row.test.file: [] for row in covered}
    rows = ""
    for row in covered:
        test = seeds[row.test.name]
        short = row.test.name.partition("::")[2]
        word = max((assertion.kind for assertion in test.assertions), key=upstream.KINDS.index)
        rows += f"| {row.test.row} | `{short}` | {len(row.cases)} | {word} |\n"
        places = "; ".join(
            f"`{spec}` ({', '.join(f'{name} {count}' for name, count in covering_cases.items())})"
            for spec, covering_cases in _cases_of(row.covering).items()
        )
        instances = ", ".join(
            f"`{values}` {len(covering_cases)}" if values else str(len(covering_cases))
            for values, covering_cases in zip(row.test.instances, row.cases.values(), strict=True)
        )
        parts[row.test.file] += [
            f"### {row.test.row}. `{short}`\n",
            f"{test.reason}\n",
            f"Cases of each spec: {places}. Cases of each instance: {instances}.\n",
            _compared({"assertion": test.assertions, "condition": test.conditions}),
        ]
    every = [assertion for test in seeds.values() for assertion in test.assertions]
    conditions = [assertion for test in seeds.values() for assertion in test.conditions]
    conditions += [assertion for entries in of_files.values() for assertion in entries]
    head = SEED_TESTS.format(
        tests=len(covered),
        instances=sum(len(row.cases) for row in covered),
        kinds=" | ".join(upstream.KINDS),
        rules="---|" * len(upstream.KINDS),
        assertions=_counts(every),
        conditions=_counts(conditions),
    )
    sections = (
        f"\n## {file}\n\nConditions of all of its tests:\n\n"
        + _compared({"condition": of_files[file]})
        + "\n"
        + "\n".join(part)
        for file, part in parts.items()
    )
    return head + rows + "".join(sections)


def _cases_of(cases: Iterable[Case]) -> dict[str, Counter[str]]:
    """Return how many cases of each spec each backend has."""
    specs: dict[str, Counter[str]] = {}
    for case in cases:
        specs.setdefault(f"{case.area}/{case.name}", Counter())[case.backend] += 1
    return specs


def _compared(entries: Mapping[str, Sequence[upstream.Comparison]]) -> str:
    rows = [
        (name, entry.kind, _cell(entry.seed), _cell(entry.ours), ", ".join(entry.on))
        for name, of_kind in entries.items()
        for entry in of_kind
    ]
    return "".join(f"{line}\n" for line in table(("what", "word", "seed", "ours", "on"), rows))


def _counts(entries: Iterable[upstream.Comparison]) -> str:
    counts = Counter(entry.kind for entry in entries)
    return " | ".join(str(counts[kind]) for kind in upstream.KINDS)


# -- shipped specs on a page of prose --------------------------------------------------------------

_SHIPPED = re.compile(r"(<!-- shipped: (\S+) -->\n```yaml\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


def with_shipped_specs(page: str) -> str:
    """Return a page whose fences ``shipped`` hold the specs that they name, without the comments
    above them.
    """
    return _SHIPPED.sub(
        lambda found: found[1] + re.sub(r"\A(#.*\n)+", "", _spec_text(f"specs/{found[2]}.yaml")),
        page,
    )


# -- the gallery -----------------------------------------------------------------------------------

GALLERY = """\
# Gallery

The shipped specs, a page for each area. The pages are generated from the specs by `python -m tools.generate_docs`; do not edit them.

| area | specs | cases | what it claims |
|---|---|---|---|
"""  # noqa: E501 - a table


def gallery(cases: Iterable[Case]) -> dict[str, str]:
    """Return the pages by their names, as Markdown."""
    areas: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        areas.setdefault(case.area, {}).setdefault(case.spec, []).append(case)
    rows = "".join(_row_of_area(area, areas[area]) for area in sorted(areas))
    return {
        "index.md": GALLERY + rows,
        **{f"{area}.md": _area(area, areas[area]) for area in sorted(areas)},
    }


def _row_of_area(area: str, specs: Mapping[str, Sequence[Case]]) -> str:
    count = sum(map(len, specs.values()))
    return (
        f"| [{_title(area)}]({area}.md) | {len(specs)} | {count} | "
        f"{_cell(_first_sentence(_introduction(area)))} |\n"
    )


def _area(area: str, specs: Mapping[str, Sequence[Case]]) -> str:
    files = {spec: _spec_text(spec) for spec in specs}
    shortest = min(files, key=lambda spec: (files[spec].count("\n"), spec))
    parts = [
        f"# {_title(area)}\n",
        _introduction(area) + "\n",
        f"`torch-conformance run specs/{area}` runs it. One of its specs, `{shortest}`:\n",
        f"<!-- shipped-spec: {shortest} -->\n```yaml\n{files[shortest]}```\n",
        f"## Its {len(specs)} specs\n",
        "".join(
            f"{line}\n"
            for line in table(
                ("spec", "claim", "backends", "cases", "judged by"),
                [_row(spec, specs[spec]) for spec in sorted(specs)],
            )
        ),
    ]
    return "\n".join(parts)


def _row(spec: str, cases: Sequence[Case]) -> Sequence[object]:
    backends = ", ".join(dict.fromkeys(case.backend for case in cases))
    judges = ", ".join(
        sorted(
            {
                f"`{expected.kind}`"
                for case in cases
                for step in case.steps
                for expected in step.expectations
            }
        )
    )
    on_request = " (on request)" if cases[0].on_request else ""
    return f"`{Path(spec).stem}`{on_request}", _cell(cases[0].summary), backends, len(cases), judges


def _spec_text(spec: str) -> str:
    return (ROOT / spec).read_text("utf-8").rstrip("\n") + "\n"


def _title(area: str) -> str:
    return (
        (ROOT / "specs" / area / "README.md").read_text("utf-8").splitlines()[0].removeprefix("# ")
    )


def _introduction(area: str) -> str:
    paragraphs = (ROOT / "specs" / area / "README.md").read_text("utf-8").split("\n\n")
    text = next(
        paragraph.strip()
        for paragraph in paragraphs
        if paragraph.strip() and not paragraph.startswith(("#", "|", "-", "`", "<"))
    )
    return text.replace("](../../docs/", "](../")


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".:") + "."


def _cell(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    main()
