"""Wrong answers of survivors: which survivors are searched with, and what counts as a wrong answer.

One search is real, with torch.
"""

import json
from pathlib import Path

import pytest

from tools.mutants import differential
from tools.mutants.named import Named, Survivor, source_of
from tools.mutants.operators import Mutant, difference, mutants
from tools.mutants.table import named
from torch_conformance.model.outcomes import Outcome

LOWERING = "torch._inductor.lowering"


def flipped() -> Mutant:
    """The mutant under which a flip begins with the last element but one."""
    source = source_of(LOWERING)
    alike = [
        one for one in mutants(LOWERING, source) if (one.function, one.kind) == ("rev", "constant")
    ]
    wanted = (
        "-            idx[dim] = sizes[dim] - 1 - idx[dim]\n+            idx[dim] = sizes[dim] - "
        "2 - idx[dim]"
    )
    found = [one for one in alike if difference(source, one) == wanted]
    if not found:
        pytest.skip("the installed torch flips otherwise")
    return found[0]


def record(folder: Path, *found: Mutant, status: str = "survived") -> Path:
    """Write a record in which the mutants have a status."""
    source = source_of(LOWERING)
    rows = [
        {
            "name": one.name,
            "function": one.function,
            "status": status,
            "difference": difference(source, one),
            "cases": {},
        }
        for one in found
    ]
    file = folder / "record.json"
    file.write_text(json.dumps({"mutants": rows}))
    return file


def searched(*arguments: object) -> dict[Mutant, differential.Named]:
    return differential.wanted(differential._parser().parse_args([*map(str, arguments)]))


def test_survivors_of_a_record_are_searched_with_and_killed_mutants_are_not(tmp_path: Path) -> None:
    one = flipped()
    assert list(searched("--record", record(tmp_path, one))) == [one]
    assert list(searched("--record", record(tmp_path, one, status="killed"))) == []


def test_classified_survivors_are_searched_with_by_their_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = flipped()
    name = Named(one.module, one.function, one.kind, difference(source_of(LOWERING), one))
    for classified, options, found in (
        ("wrong answer", (), [one]),
        ("slower", (), []),
        ("slower", ("--classified", "slower"), [one]),
    ):
        monkeypatch.setattr(
            differential,
            "survivors",
            lambda classified=classified: (Survivor(name, classified, "a reason", ""),),
        )
        assert list(searched(*options)) == found


def test_a_failed_comparison_is_a_wrong_answer_and_an_exception_is_loud() -> None:
    one, other, sound = mutants("m", "def f(x):\n    return x == 1 and x < 2\n")[:3]
    tried = [
        differential.Tried(
            one, {"a": Outcome.FAIL, "b": Outcome.PASS}, {"a": "close: 3 ulp", "b": ""}
        ),
        differential.Tried(
            other,
            {"a": Outcome.FAIL, "b": Outcome.TIMEOUT},
            {"a": "raised: close: TypeError", "b": "timeout: after 60 s"},
        ),
        differential.Tried(sound, {"a": Outcome.PASS}, {"a": ""}),
    ]
    assert differential.differing(tried) == [
        differential.Differs(one, {"a": "close: 3 ulp"}, {}),
        differential.Differs(
            other, {}, {"a": "FAIL raised: close: TypeError", "b": "TIMEOUT timeout: after 60 s"}
        ),
    ]


def test_every_operator_of_the_search_has_a_case(tmp_path: Path) -> None:
    assert len(differential.operator_cases(tmp_path / "x", differential.OPERATORS)) == len(
        differential.OPERATORS
    )
    with pytest.raises(LookupError, match="is called no_such_operator"):
        differential.operator_cases(tmp_path / "y", ["no_such_operator"])


@pytest.mark.torch
@pytest.mark.nightly(reason="builds kernels; the tests above judge what a search found")
def test_a_mutant_that_gives_a_wrong_answer_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = flipped()
    out = tmp_path / "found.json"
    assert (
        differential.main(
            ["flip", "add", "--record", str(record(tmp_path, found)), "--json", str(out)]
        )
        == 1
    )
    assert "1 give a wrong answer" in capsys.readouterr().out
    (tried,) = json.loads(out.read_bytes())["tried"]
    assert (
        tried["mutant"]
        == named(json.loads((tmp_path / "record.json").read_bytes())["mutants"][0]).text
    )
    assert len(tried["operators"]) == len(tried["wrong"]) == 1, "'add' does not execute the line"
