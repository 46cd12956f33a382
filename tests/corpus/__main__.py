"""``python -m tests.corpus record SPEC...``, ``show [NAME...]``, ``accept NAME...``, ``texts``,
``check``.

``record`` runs specs and makes a folder of each from what the run left. ``show`` prints what the
cases of folders give. ``accept`` writes it into ``cases.yaml``, to be reviewed as data; ``texts``
does so with whole texts. ``check`` is the test.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.corpus import HERE, TEXTS, CorpusCase, given, groups, run, texts


def record(specs: list[Path]) -> None:
    """Run specs, and make a folder of each."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for spec in specs:
            path = place / "specs" / spec.stem / "recorded.yaml"
            path.parent.mkdir(parents=True)
            path.write_text(spec.read_text("utf-8"), "utf-8")
        subprocess.run(
            [sys.executable, "-m", "torch_conformance", "run", "specs", "--out", "out"],
            cwd=place,
            check=False,
        )
        for line in map(json.loads, (place / "out" / "run.jsonl").read_text("utf-8").splitlines()):
            if line["kind"] == "case":
                _make_folder(
                    HERE / line["area"],
                    place / "specs" / line["area"] / "recorded.yaml",
                    place / "out" / line["folder"],
                    line,
                )


def _make_folder(folder: Path, spec: Path, left: Path, line: dict[str, object]) -> None:
    folder.mkdir()
    (folder / "spec.yaml").write_text(spec.read_text("utf-8"), "utf-8")
    for path in [
        *left.glob("observation.json"),
        *left.glob("services.json"),
        *left.glob("code-*.txt"),
    ]:
        text = re.sub(
            r"(?<=[\s'\"(=])/[^\s'\":]*/(?=[^/\s'\":]+)", "/elsewhere/", path.read_text("utf-8")
        )
        if path.suffix == ".json":
            text = readable(json.loads(text)) + "\n"
        (folder / path.name).write_text(text, "utf-8")
    (folder / "cases.yaml").write_text(
        f'cases:\n  recorded:\n    gives: "{given(line)}"\n', "utf-8"
    )


def readable(value: object, indent: str = "") -> str:
    """Return JSON in which only what is too long for a line is broken into lines."""
    text = json.dumps(value)
    if len(text) + len(indent) <= 130 or not isinstance(value, dict | list):
        return text
    keys = (
        (f"{json.dumps(key)}: " for key in value)
        if isinstance(value, dict)
        else itertools.repeat("")
    )
    items = value.values() if isinstance(value, dict) else value
    lines = ",\n".join(
        f"{indent} {key}{readable(item, f'{indent} ')}"
        for key, item in zip(keys, items, strict=False)
    )
    return f"{{\n{lines}\n{indent}}}" if isinstance(value, dict) else f"[\n{lines}\n{indent}]"


def shown(names: list[str]) -> dict[CorpusCase, tuple[str, list[str]]]:
    """Return what the cases of folders give and contradict, of all without a name."""
    found = {}
    for some in groups().values():
        chosen = [case for case in some if not names or case.folder.name in names]
        if chosen:
            with tempfile.TemporaryDirectory() as scratch:
                made = run(Path(scratch), chosen)
                contradictions = made.contradictions
                found.update(
                    {
                        case: (given(line), contradictions.get(case.title, []))
                        for case, line in made.results
                    }
                )
    return found


def accept(names: list[str]) -> None:
    """Write what the cases of folders give into their files."""
    for case, (text, checks) in shown(names).items():
        path = case.folder / "cases.yaml"
        file = path.read_text("utf-8")
        start = re.search(rf"^  (['\"]?){re.escape(case.name)}\1:.*\n", file, re.M)
        assert start is not None, case.title
        end = re.compile(r"^  \S|\Z", re.M).search(file, start.end())
        assert end is not None
        body = re.sub(
            r"^    (gives|contradicts):.*\n", "", file[start.end() : end.start()], flags=re.M
        )
        body += f'    gives: "{text}"\n' + (
            f"    contradicts: [{', '.join(checks)}]\n" if checks else ""
        )
        path.write_text(file[: start.end()] + body + file[end.start() :], "utf-8")


match sys.argv[1:]:
    case ["record", *specs] if specs:
        record([Path(spec) for spec in specs])
    case ["show", *names]:
        for case, (text, checks) in shown(names).items():
            print(f"{case.title}: {text}{f' contradicts {checks}' if checks else ''}")
    case ["accept", *names] if names:
        accept(names)
    case ["texts"]:
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in texts(Path(scratch)).items():
                (TEXTS / f"{name}.txt").write_text(text, "utf-8")
    case ["check"]:
        sys.exit(pytest.main([str(HERE.parent / "unit" / "judge" / "test_corpus.py"), "-q"]))
    case _:
        sys.exit(__doc__)
