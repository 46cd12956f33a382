"""``verify --against``: an archive beside the reader's own run of the same profile."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.submissions import CODE, ONE, PROFILE, TWO, Archive, a_run
from torch_conformance.cli.parser import main
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.record.case_files import digest
from torch_conformance.record.journal import NamedRun
from torch_conformance.run.compared_runs import read_placed
from torch_conformance.tools.attest import verification
from torch_conformance.tools.attest.against import Deviation
from torch_conformance.tools.attest.archive import packed, unpacked
from torch_conformance.tools.attest.packing import members_of, recorded
from torch_conformance.tools.attest.recompute import Recomputation
from torch_conformance.tools.attest.verification import Verification, verified

LAUNCHED = {
    "launched": {"fused": 1, "extern": 0, "user": 0},
    "names": ["fused cpp_fused_add_0"],
    "recorded": True,
    "ran": 1,
}


def own(place: Path, **options: str) -> NamedRun:
    with a_run(place, measured={"8": LAUNCHED}, **options) as out:
        return read_placed(str(out))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    with a_run(tmp_path_factory.mktemp("author"), measured={"8": LAUNCHED}) as out:
        return members_of(*recorded(str(out)), None)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> NamedRun:
    return own(tmp_path_factory.mktemp("reader"))


def of_step(**fields: object) -> Callable[[Archive], None]:
    return lambda one: one.observation(ONE, lambda sent: sent["steps"][0].update(fields))


def with_code(change: Callable[[bytes], bytes]) -> Callable[[Archive], None]:
    def act(archive: Archive) -> None:
        archive.code(ONE, change)
        of_step(code_digests=[digest(change(CODE.encode()))])(archive)

    return act


def machine(**facts: str) -> Callable[[Archive], None]:
    return lambda archive: archive.edit(lambda line: line["environment"].update(facts), "header")


def named_otherwise(archive: Archive) -> None:
    with_code(lambda code: code.replace(b"add_0", b"add_1"))(archive)
    measured = {"8": {**LAUNCHED, "names": ["fused cpp_fused_add_1"]}}
    of_step(measured=measured)(archive)


def compared(archive: Archive, mine: NamedRun) -> Verification:
    archive.restated()
    return verified(packed(archive.repaired().members), against=mine)


DIFFER = {
    "a counter": (
        of_step(counters={"inductor": {"fxgraph_cache_miss": 1, "pattern_matcher_count": 3}}),
        "counters.inductor.pattern_matcher_count: 3 in the archive, none here",
    ),
    "a metric": (
        of_step(metrics={"generated_kernel_count": 4}),
        "metrics.generated_kernel_count: 4 in the archive, 1 here",
    ),
    "the code": (
        with_code(lambda code: code.replace(b"in_ptr0[0] + 2", b"in_ptr0[0] + 1 + 1")),
        "code-0-0.txt: ",
    ),
    "the name of a kernel": (named_otherwise, "kernels, expectation 8: ['fused cpp_fused_add_1']"),
}


@pytest.mark.parametrize("name", DIFFER)
def test_what_the_archive_observed_otherwise(
    name: str, honest: dict[str, bytes], mine: NamedRun
) -> None:
    change, words = DIFFER[name]
    archive = Archive(honest)
    change(archive)
    assert compared(archive, None).exit_code is ExitCode.OK  # nothing in it contradicts it
    found = compared(archive, mine)
    assert found.exit_code is ExitCode.FAILED
    assert [finding.check for finding in found.findings] == ["against"]
    assert found.against is not None
    assert {(apart.case, apart.step) for apart in found.against.differ} == {(ONE, 1)}
    assert any(words in f"{apart}" for apart in found.against.differ)
    *_, last = found.against.lines()
    assert last == "  3 of 4 required cases agree"


def test_what_agrees(honest: dict[str, bytes], mine: NamedRun) -> None:
    found = compared(Archive(honest), mine)
    assert (found.exit_code, found.rests_on["observed_again"]) == (ExitCode.OK, 4)
    assert (
        "that 4 cases have the same outcome, code, kernels and counters in your run"
        in "\n".join(found.follows)
    )


def test_an_outcome_that_differs(honest: dict[str, bytes], tmp_path: Path) -> None:
    """The archive says PASS where the reader's kernel is missing."""
    code = re.sub("cpp_fused_add_0", "cpp_fused_add", CODE)
    mine = own(tmp_path, code=code.replace("cpp_fused_add", "cpp_fused_sum"))
    found = compared(Archive(honest), mine)
    assert found.against is not None
    outcomes = [apart for apart in found.against.differ if apart.what == "outcome"]
    assert [apart.case for apart in outcomes[:1]] == [ONE]
    assert outcomes[0].archive == "PASS"
    assert outcomes[0].reader.startswith("FAIL filecheck")
    assert found.exit_code is ExitCode.FAILED


TIMED = {"name": "mm_0", "class": "torch.Choice"}


def test_what_need_not_agree(honest: dict[str, bytes], mine: NamedRun) -> None:
    """Another build, and what the reader's own machine chose by time; what the archive says of its
    choices decides nothing.
    """
    archive = Archive(honest)
    of_step(metrics={"generated_kernel_count": 4})(archive)
    machine(triton="9.9.9")(archive)
    found = compared(archive, mine)
    assert found.exit_code is ExitCode.OK
    assert found.against is not None
    assert set(found.against.not_compared.values()) == {
        "other code is right for triton 9.9.9 and none"
    }
    assert found.rests_on["observed_again"] == 0  # its word stays the author's
    assert [*found.against.lines()][-1].endswith("agree, 4 of them in their outcome only")
    archive = Archive(honest)
    of_step(metrics={"generated_kernel_count": 4}, choices=[[TIMED, TIMED]])(archive)
    assert compared(archive, mine).exit_code is ExitCode.FAILED


def test_what_one_side_lacks(honest: dict[str, bytes], mine: NamedRun) -> None:
    results = [one for one in mine.run.results if one.case_id != TWO]
    found = compared(Archive(honest), replace(mine, run=replace(mine.run, results=tuple(results))))
    assert found.against is not None
    assert (found.against.lacking, found.against.agree) == ({TWO: "in your run"}, 3)
    nothing = compared(Archive(honest), replace(mine, run=replace(mine.run, results=())))
    assert nothing.exit_code is ExitCode.NOTHING


def test_another_profile_or_the_run_itself_is_an_error(
    honest: dict[str, bytes], mine: NamedRun, tmp_path: Path
) -> None:
    other = own(tmp_path, profile=PROFILE.replace("1.0", "1.1"))
    same = replace(
        mine.run, header=replace(mine.run.header, run_id=Archive(honest).lines[0]["run_id"])
    )
    for run, words in ((other, "its profile is ours 1.1"), (replace(mine, run=same), "itself")):
        with pytest.raises(UsageError, match=words):
            compared(Archive(honest), run)


def test_the_command_compares_with_a_folder_and_with_an_archive(
    honest: dict[str, bytes], mine: NamedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tar.zst").write_bytes(packed(honest))
    with a_run(tmp_path) as out:
        (tmp_path / "b.tar.zst").write_bytes(packed(members_of(*recorded(str(out)), None)))
        forged = Archive(unpacked((tmp_path / "b.tar.zst").read_bytes()))
        forged.edit(lambda line: line.update(reason="because"), ONE)
        (tmp_path / "c.tar.zst").write_bytes(packed(forged.members))
        verify = ["verify", "a.tar.zst", "--against"]
        assert main([*verify, str(mine.folder)]) == ExitCode.OK
        said = capsys.readouterr()
        assert said.out.splitlines()[-1] == "  4 of 4 required cases agree"
        assert said.err.endswith("also observed by an independent run of 4 cases, numbers aside\n")
        # that run measured no kernels
        assert main([*verify, "b.tar.zst"]) == ExitCode.FAILED
        assert main([*verify, "c.tar.zst"]) == ExitCode.USAGE
        assert "c.tar.zst: NOT VERIFIED" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("torch", "check", "code"),
    [(None, ["numbers"], ExitCode.FAILED), ("2.0.1", [], ExitCode.NOTHING)],
)
def test_numbers_of_another_torch_are_no_contradiction(
    torch: str | None,
    check: list[str],
    code: ExitCode,
    honest: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = torch or Archive(honest).lines[0]["environment"]["torch"]
    apart = Deviation(ONE, 1, "eager's number", "1.0", "2.0")
    found = Recomputation(seed=1, torch=here, cases=(ONE,), numbers=1, differ=(apart,))
    monkeypatch.setattr(verification, "recomputed", lambda *_, **__: found)
    result = verified(packed(honest), recompute=1)
    assert ([one.check for one in result.findings], result.exit_code) == (check, code)
    assert result.recomputed is found
