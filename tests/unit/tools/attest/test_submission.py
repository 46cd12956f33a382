"""What ``submit`` packs, what it cuts, which runs it refuses; and the command ``verify``."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.submissions import CODE, Archive, a_run, write_keys
from torch_conformance.cli.parser import main
from torch_conformance.machine.redaction import KNOWN
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.record.journal import read_run
from torch_conformance.tools.attest import archive
from torch_conformance.tools.attest.archive import PREDICATE_TYPE, STATEMENT_TYPE

SECRET = "hunter2-is-a-secret"


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a run in ``out``, made once; its code names the folder and a secret."""
    place = tmp_path_factory.mktemp("author")
    with a_run(
        place, code=CODE + f"# {place}/cache/a.py, ~{os.path.expanduser('~')}/b.py, {SECRET}\n"
    ):
        yield place


@pytest.fixture
def folder(author: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that folder as the working folder."""
    shutil.copytree(author, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_submission_is_the_same_bytes_and_verifies(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_keys(folder)
    assert main(["submit", "out", "--out", "one.tar.zst", "--key", "private.pem"]) == ExitCode.OK
    capsys.readouterr()
    assert main(["submit", "out", "--out", "two.tar.zst", "--key", "private.pem"]) == ExitCode.OK
    said = capsys.readouterr()
    data = (folder / "one.tar.zst").read_bytes()
    assert data == (folder / "two.tar.zst").read_bytes()
    assert f"{len(data)} bytes" in said.err
    assert "not verified" not in said.err
    assert "CONFORMANT with 1 waiver" in said.err
    assert said.out == "two.tar.zst\n"
    statement = json.loads(archive.unpacked(data)["attestation.json"])
    assert (statement["_type"], statement["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    assert {one["name"] for one in statement["subject"]} == archive.unpacked(data).keys() - {
        "attestation.json",
        "attestation.dsse.json",
    }
    signer = statement["predicate"]["signer"]
    assert f"signed with the key {signer[:16]}" in said.err
    assert (
        main(["verify", "one.tar.zst", "--key", "public.pem", "--profile", "ours.yaml"])
        == ExitCode.OK
    )
    printed = capsys.readouterr()
    assert "consistent, and CONFORMANT with 1 waiver if the 4 observations are true" in printed.err
    assert " files of torch" in printed.out.partition("tested, as the author says:")[2]
    assert printed.out.index("follows from the archive") < printed.out.index("the author's word:")
    assert "CONFORMANT with 1 waiver: 3 passed, 1 waived of 4 required" in printed.out


def test_neither_folders_nor_secrets_are_packed(
    folder: Path, author: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder)
    monkeypatch.chdir(author)
    monkeypatch.setattr(KNOWN, "_values", {SECRET: None})
    monkeypatch.setattr(KNOWN, "_pattern", None)
    assert main(["submit", "out", "--out", str(folder) + ".tar.zst"]) == ExitCode.OK
    members = archive.unpacked(Path(f"{folder}.tar.zst").read_bytes())
    for name, data in members.items():
        for word in (str(author), os.path.expanduser("~") + "/", SECRET):
            assert word.encode() not in data, name
    assert b"# ./cache/a.py, ~~/b.py, ***\n" in members["cases/00001/code-0-0.txt"]
    assert {name for name in members if name.startswith("files/own/")} == {
        "files/own/known.yaml",
        "files/own/ours.yaml",
        "files/own/specs/area/one.yaml",
        "files/own/specs/area/two.yaml",
    }


@contextmanager
def a_run_with_a_long_text(place: Path) -> Iterator[None]:
    """Make a run whose verdicts show the length and the beginning of a text with a folder of this
    machine: both change with the cut.
    """
    text = f"nvcc -I{place}/packages/include {'x' * 200}"
    with a_run(place, more="  - log: {contains: nvcc}\n", measured={"2": {"text": text}}) as out:
        assert f"{len(text)} characters: nvcc -I{place}/" in (out / "run.jsonl").read_text()
        yield


def test_an_excerpt_of_a_text_with_a_folder_is_that_of_the_cut_text(tmp_path: Path) -> None:
    with a_run_with_a_long_text(tmp_path):
        assert main(["submit", "out", "--out", "a.tar.zst"]) == ExitCode.OK
        lines = map(
            json.loads, archive.unpacked(Path("a.tar.zst").read_bytes())["run.jsonl"].splitlines()
        )
        shown = [
            verdict["observed"]
            for line in lines
            for verdict in line.get("verdicts", ())
            if verdict["kind"] == "log"
        ]
        assert (
            shown
            == [
                f"{len('nvcc -I./packages/include ') + 200} characters: nvcc "
                f"-I./packages/include {'x' * 134}..."
            ]
            * 2
        )
        assert main(["verify", "a.tar.zst", "--profile", "ours.yaml"]) == ExitCode.OK


def test_the_reasons_of_weak_claims_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_run(
        tmp_path,
        more="  - {filecheck: {code: 0, checks: 'CHECK: def call('}, weak: all code has it}\n",
    ):
        capsys.readouterr()
        assert main(["submit", "out"]) == ExitCode.OK
        said = capsys.readouterr().err
    forms = ", ".join(
        f"the code of a trivial function of the form {form}"
        for form in ("pointwise", "vectorized", "reduction")
    )
    place = "files/own/specs/area/one.yaml:12:6"
    assert f"weak: {place}: filecheck also holds with {forms}: all code has it" in said


def test_an_edited_excerpt_is_not_replaced_by_the_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_run_with_a_long_text(tmp_path):
        write(
            tmp_path,
            [line.replace(" characters: nvcc", " characters: gcc") for line in lines(tmp_path)],
        )
        assert main(["submit", "out", "--out", "a.tar.zst"]) == ExitCode.FAILED
        assert (
            "the text of log at line 12 is not what the files and judging it again give"
            in capsys.readouterr().err
        )


def lines(folder: Path) -> list[str]:
    return (folder / "out" / "run.jsonl").read_text().splitlines(keepends=True)


def write(folder: Path, found: list[str]) -> None:
    (folder / "out" / "run.jsonl").write_text("".join(found))


def spoil(folder: Path, kind: str) -> None:
    piece = folder / "out" / "cases" / "00001" / "code-0-0.txt"
    match kind:
        case "truncated":
            write(folder, lines(folder)[:-1])
        case "edited":
            write(
                folder,
                [line.replace('"outcome": "XFAIL"', '"outcome": "PASS"') for line in lines(folder)],
            )
        case "code":
            piece.write_text("other")
        case "link":
            (folder / "secret").write_text(piece.read_text())
            piece.unlink()
            piece.symlink_to(folder / "secret")
        case "folder link":
            piece.parent.rename(folder / "elsewhere")
            piece.parent.symlink_to(folder / "elsewhere")
        case "pipe":
            piece.unlink()
            os.mkfifo(piece)
        case "spec":
            (folder / "specs" / "area" / "one.yaml").write_text("summary: x\n")
        case "no waivers":
            (folder / "known.yaml").unlink()


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("truncated", ExitCode.USAGE, "was cut off; resume it"),
        ("edited", ExitCode.FAILED, "nothing was written"),
        ("code", ExitCode.FAILED, "not the file that area/one"),
        ("link", ExitCode.FAILED, "cannot be read"),
        ("folder link", ExitCode.FAILED, "a link in the place of the files"),
        ("pipe", ExitCode.FAILED, "cannot be read"),
        ("spec", ExitCode.USAGE, "this is not the file that the run read"),
        ("no waivers", ExitCode.USAGE, "cannot be packed"),
    ],
)
def test_a_run_that_cannot_be_submitted_is_refused(
    kind: str, code: ExitCode, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(folder, kind)
    assert main(["submit", "out", "--out", "a.tar.zst"]) == code
    assert words in capsys.readouterr().err
    assert not (folder / "a.tar.zst").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("verify no.tar.zst", "cannot be read"),
        ("verify .", "cannot be read"),
        ("submit out --key ours.yaml", "no private key"),
        ("submit out --key no.pem", "cannot be read"),
        ("submit no", "no run 'no'"),
    ],
)
def test_wrong_usage_says_what_to_do(
    arguments: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == ExitCode.USAGE
    assert words in capsys.readouterr().err


def test_a_challenge_enters_the_seeds_and_the_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_run(tmp_path, options="--challenge fresh7") as out:
        run = read_run(out / "run.jsonl")
        (waived,) = (result for result in run.results if result.outcome is Outcome.XFAIL)
        (seed,) = (line for line in waived.options if line.startswith("torch.seed: "))
        assert waived.repro.endswith(f"--challenge fresh7 --select '{waived.case_id}'")
        assert main(["submit", "out", "--out", "a.tar.zst"]) == ExitCode.OK
        assert main(["verify", "a.tar.zst"]) == ExitCode.OK
        assert "depend on the challenge 'fresh7'" in capsys.readouterr().out
        changed = Archive(archive.unpacked(Path("a.tar.zst").read_bytes()))
        changed.edit(lambda line: line["options"].update(challenge="fresh8"), "header")
        changed.restated()
        Path("b.tar.zst").write_bytes(archive.packed(changed.repaired().members))
        assert main(["verify", "b.tar.zst"]) == ExitCode.FAILED
        assert f"{waived.case_id}: its " in capsys.readouterr().out
    (tmp_path / "usual").mkdir()
    with a_run(tmp_path / "usual") as out:
        run = read_run(out / "run.jsonl")
        assert not [result for result in run.results if seed in result.options]
