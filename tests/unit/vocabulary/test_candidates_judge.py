"""The answer of each candidate of autotuning by the calibrated judge.

Nothing of inductor is compiled: answers are given.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch, reading
from tests.sessions import prepared
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.protocol import decode, dumps, encode, loads
from torch_conformance.vocabulary.expectations import EXPECTATIONS

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()

SPEC = """\
function: |
  def fn(x, y):
      return (x @ y).tanh()
inputs: [{randn: [32, 64], dtype: bfloat16}, {randn: [64, 24], dtype: bfloat16}]
expect: [{candidates: BODY}]
"""


def judged(folder: Path, monkeypatch: pytest.MonkeyPatch, second: Any, body: str = "{}") -> Verdict:
    """Judge two candidates, of which the second has another answer than eager."""
    from torch_conformance.worker.case import additional

    @contextlib.contextmanager
    def only(number: int) -> Iterator[list[list[str]]]:
        tried.append(number)
        yield [["mm", "cpp"][number:] + ["mm"][:number]]

    tried: list[int] = []
    run = additional.RepeatableCall.run

    def answer(self: Any, arguments: Any = None) -> Any:
        found = run(self, arguments)
        return second(found) if tried[-1] == 1 else found

    torch._dynamo.reset()
    monkeypatch.setattr(additional.RepeatableCall, "with_candidate", staticmethod(only))
    monkeypatch.setattr(additional.RepeatableCall, "run", answer)
    session, plan = prepared(folder, SPEC.replace("BODY", body))
    (step,) = plan["steps"]
    session.begin_step(step)
    session.do(step)
    facts = session.additional.repeat(step["measure"][0], step, 0, session.names.values())
    session.additional.run()
    sent = decode(loads(dumps(encode(facts))))
    (found,) = EXPECTATIONS["candidates"].parse(decode(loads(body))).judge(reading(measured=sent))
    return found


@pytest.mark.parametrize("scale", [1.0, 1.012], ids=["right", "1.2 % off"])
def test_a_candidate_is_judged_by_eagers_error(
    tmp_path: Path, monkeypatch: Any, scale: float
) -> None:
    found = judged(tmp_path, monkeypatch, lambda answer: (answer.float() * scale).bfloat16())
    if scale == 1:
        assert found.status is Status.HELD, found
        assert found.observed == "2 of 2 candidates ran: mm, cpp"
    else:
        assert found.status is Status.FAILED
        assert "output within 2 x eager's error against float64" in found.expected
        assert found.observed.startswith("candidate cpp: ")


def test_tolerances_of_the_spec_judge_a_candidate(tmp_path: Path, monkeypatch: Any) -> None:
    body = '{"atol": 0.1, "rtol": 0.1}'
    assert (
        judged(
            tmp_path, monkeypatch, lambda answer: (answer.float() * 1.012).bfloat16(), body
        ).status
        is Status.HELD
    )
