"""Write a page for each area of the shipped specs: ``python tools/generate_gallery.py`` writes ``docs/gallery/*.md``.

A page has the first paragraph of the area's README, its shortest spec whole, and a row for each spec: its claim, its backends, its judges.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runner.core.case import Case
from runner.language.load import load

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"

INTRODUCTION = """\
# Gallery

The shipped specs, a page for each area. The pages are generated from the specs by `python tools/generate_gallery.py`; do not edit them.

| area | specs | cases | what it claims |
|---|---|---|---|
"""


def pages(cases: Iterable[Case]) -> dict[str, str]:
    """Return the pages by their names, as Markdown."""
    areas: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        areas.setdefault(case.area, {}).setdefault(case.spec, []).append(case)
    found = {f"{area}.md": _page(area, areas[area]) for area in sorted(areas)}
    rows = "".join(_row_of_area(area, areas[area]) for area in sorted(areas))
    return {"index.md": INTRODUCTION + rows, **found}


def _row_of_area(area: str, specs: Mapping[str, Sequence[Case]]) -> str:
    count = sum(map(len, specs.values()))
    return f"| [{_title(area)}]({area}.md) | {len(specs)} | {count} | {_cell(_first_sentence(_introduction(area)))} |\n"


def _page(area: str, specs: Mapping[str, Sequence[Case]]) -> str:
    files = {spec: _text(spec) for spec in specs}
    shortest = min(files, key=lambda spec: (files[spec].count("\n"), spec))
    parts = [
        f"# {_title(area)}\n",
        _introduction(area) + "\n",
        f"`torch-conformance run specs/{area}` runs it. One of its specs, `{shortest}`:\n",
        f"<!-- shipped-spec: {shortest} -->\n```yaml\n{files[shortest]}```\n",
        f"## Its {len(specs)} specs\n",
        "| spec | claim | backends | cases | judged by |\n|---|---|---|---|---|\n"
        + "".join(_row(spec, specs[spec]) for spec in sorted(specs)),
    ]
    return "\n".join(parts)


def _row(spec: str, cases: Sequence[Case]) -> str:
    backends = ", ".join(dict.fromkeys(case.backend for case in cases))
    judges = ", ".join(sorted({f"`{expected.kind}`" for case in cases for step in case.steps for expected in step.expectations}))
    asked = " (on request)" if cases[0].on_request else ""
    return f"| `{Path(spec).stem}`{asked} | {_cell(cases[0].summary)} | {backends} | {len(cases)} | {judges} |\n"


def _text(spec: str) -> str:
    return (ROOT / spec).read_text("utf-8").rstrip("\n") + "\n"


def _title(area: str) -> str:
    return (ROOT / "specs" / area / "README.md").read_text("utf-8").splitlines()[0].removeprefix("# ")


def _introduction(area: str) -> str:
    paragraphs = (ROOT / "specs" / area / "README.md").read_text("utf-8").split("\n\n")
    found = next(paragraph.strip() for paragraph in paragraphs if paragraph.strip() and not paragraph.startswith(("#", "|", "-", "`", "<")))
    return found.replace("](../../docs/", "](../")


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".:") + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def main() -> None:
    """Write the pages."""
    GALLERY.mkdir(exist_ok=True)
    for name, text in pages(load([]).cases).items():
        (GALLERY / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
