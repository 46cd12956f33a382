"""One run of ``tests/specs/words``, with a real torch: words of the language for values and
conditions, each said by one small spec.
"""

import pytest

from tests.fakes import ROOT, prestarted
from tests.ran import Ran, called
from torch_conformance.cli.parser import main
from torch_conformance.model.outcomes import ExitCode, Outcome

pytestmark = pytest.mark.torch

WORDS = ROOT / "tests" / "specs" / "words"

OUTCOMES = {
    "aot-strict[backend=cpu]": Outcome.PASS,
    "arguments-of-compile[backend=cpu]": Outcome.PASS,
    "backward-loss[backend=eager]": Outcome.PASS,
    "bits-of-nan[backend=cpu]": Outcome.PASS,
    "cache-hit-in-a-child[backend=cpu]": Outcome.PASS,
    "causes[backend=host]": Outcome.PASS,
    "changed-between-calls[backend=eager]": Outcome.PASS,
    "conditions[backend=cpu]": Outcome.PASS,
    "conditions-on-matrix[backend=cpu,n=small]": Outcome.PASS,
    "conditions-on-matrix[backend=cpu,n=large]": Outcome.PASS,
    "conditions-on-matrix[backend=cpu,n=unjudged]": Outcome.ERROR,
    **{
        f"further-dtypes[backend=eager,dtype={dtype}]": Outcome.PASS
        for dtype in (
            "uint16",
            "uint32",
            "uint64",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
        )
    },
    "further-inputs[backend=cpu]": Outcome.PASS,
    "hollow[backend=cpu]": Outcome.ERROR,
    "layouts[backend=eager]": Outcome.PASS,
    "new-process[backend=cpu,shown=hit]": Outcome.PASS,
    "new-process[backend=cpu,shown=wrong]": Outcome.FAIL,
    "new-process[backend=cpu,shown=raises]": Outcome.PASS,
    "new-process[backend=cpu,shown=dies]": Outcome.CRASH,
    "parts-of-results[backend=eager]": Outcome.PASS,
    "raises-as-eager[backend=eager]": Outcome.PASS,
    "references[backend=cpu]": Outcome.PASS,
    "repeats[backend=eager]": Outcome.PASS,
    "requires-false[backend=host]": Outcome.UNAVAILABLE,
    "requires-number[backend=host]": Outcome.UNAVAILABLE,
    "requires-true[backend=host]": Outcome.PASS,
    "whole-values[backend=eager,row=one]": Outcome.PASS,
    "whole-values[backend=eager,row=two]": Outcome.PASS,
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("words") / "out"
    done = called("run", WORDS, "--out", out, env=prestarted())
    return Ran(out, done.returncode, done.stdout, done.stderr)


def test_every_word_is_said_of_a_real_torch(ran: Ran) -> None:
    assert ran.outcomes == OUTCOMES, ran.stdout + ran.stderr


def test_a_case_of_which_no_expectation_applies_is_an_error(ran: Ran) -> None:
    assert (
        ran.results["hollow[backend=cpu]"].reason
        == "no expectation applies here: the case claims nothing"
    )


def test_a_missing_capability_is_named_with_question_and_answer(ran: Ran) -> None:
    reasons = {
        name: ran.results[f"requires-{name}[backend=host]"].reason for name in ("false", "number")
    }
    assert reasons == {
        "false": "torch.are_deterministic_algorithms_enabled() returned False",
        "number": "torch.get_num_threads() returned a value of type int, not True or False",
    }


def test_answers_are_no_part_of_the_recorded_machine(ran: Ran) -> None:
    """Two shards of a run ask different questions, and are merged."""
    assert "mkldnn" in ran.run.header.environment
    assert "answers" not in ran.run.header.environment


def test_no_mutant_of_these_expectations_survives(
    ran: Ran, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # a run names its specs as they were given
    code = main(["audit", str(ran.out)])
    said = capsys.readouterr()
    assert (code, ", 0 survived" in said.out) == (ExitCode.OK, True), said.out + said.err
