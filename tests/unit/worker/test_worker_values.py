"""let, spies, handlers, children, scripts and weak references in the worker: what each does, and
the facts that it leaves.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import prestarted_program
from tests.sessions import do, prepared

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

HOST = "summary: A case of one session\nbackends: [host]\n"


@pytest.fixture
def session(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a maker of prepared sessions on the host; what it changes in this process is
    undone.
    """
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda text: prepared(tmp_path, text, backend="host")[0]


BOX = """prelude: |
  closed = []
  class Box:
      def __init__(self, inner, name=""):
          self.inner, self.name, self.parts = inner, name, [1, [2, 3]]
      def shut(self):
          closed.append(self.name)
      def double(self, x):
          return 2 * x
"""


def test_let_makes_values_in_order_and_closes_them_from_the_last(session):
    one = session(
        BOX + "let:\n  first: {call: Box, args: [1], kwargs: {name: a}, close: shut}\n"
        "  second: {call: Box, args: [{ref: first}], kwargs: {name: b}, close: shut}\n"
        "steps: [{api: {call: {ref: second.inner.double}, args: [{ref: first.parts.1.0}], as: "
        "found}, expect: [{equals: {found: 4}}]}]"
    )
    assert do(one) == 4
    assert one.names.value("found") == 4
    assert one.scope.named("second.inner") is one.scope.named("first")
    assert one.module.namespace["closed"] == []
    one.close()
    assert one.module.namespace["closed"] == ["b", "a"]


def test_a_value_that_cannot_be_made_leaves_those_before_it_closed(session, tmp_path):
    with pytest.raises(ZeroDivisionError):
        session(
            "prelude: |\n  import json\n  class Kept:\n      def shut(self):\n          "
            "open(json.PLACE, 'w').close()\n"
            f"  json.PLACE = {str(tmp_path / 'shut')!r}\n"
            "let:\n  kept: {call: Kept, close: shut}\n  bad: {call: operator.truediv, args: "
            "[1, 0]}\n"
            "steps: [{api: {call: json.dumps, args: [1], as: x}, expect: [{equals: {x: '1'}}]}]"
        )
    assert (tmp_path / "shut").exists()


def test_each_kind_of_spy(session, monkeypatch):
    import json as module
    import textwrap

    monkeypatch.setattr(module, "dumps", module.dumps)  # to have it back
    monkeypatch.setattr(textwrap, "TextWrapper", textwrap.TextWrapper)
    one = session(
        BOX + "  def what(value, **kwargs):\n      return {'value': value}\n"
        "  def both(box, x):\n      return [{'name': box.name}, {'x': x}]\n"
        "  def louder(made, value):\n      return made + '!'\n"
        "let:\n  box: {call: Box, args: [1], kwargs: {name: a}}\n  other: {call: Box, args: "
        "[1], kwargs: {name: b}}\n"
        "spies:\n  dumps: {function: json.dumps, record: what, result: louder}\n"
        "  wrappers: {class: textwrap.TextWrapper}\n"
        "  doubled: {method: [{ref: box}, double], record: what, instead: {returns: 7}}\n"
        "steps:\n"
        "  - {api: {call: json.dumps, args: [3], as: text}, expect: [{calls: {of: dumps}}]}\n"
        "  - {api: {call: {ref: box.double}, args: [4], as: seven}, expect: [{calls: {of: "
        "doubled}}]}\n"
        "  - {api: {call: {ref: other.double}, args: [4], as: eight}, expect: [{calls: {of: "
        "wrappers}}]}\n"
        "  - {api: {call: textwrap.TextWrapper}}\n"
        "  - {clear_counters: {}}\n"
    )
    assert [do(one, index) for index in range(3)] == ["3!", 7, 8]
    made = do(one, 3)
    assert isinstance(made, textwrap.TextWrapper)
    facts = {name: spy.facts() for name, spy in one.spies.items()}
    assert facts == {
        "dumps": {"count": 1, "entries": [{"value": 3}]},
        "wrappers": {"count": 1, "entries": [{}]},
        "doubled": {"count": 1, "entries": [{"value": 4}]},
    }
    do(one, 4)
    assert [spy.count for spy in one.spies.values()] == [0, 0, 0]


def test_more_calls_than_are_kept_are_counted(session, monkeypatch):
    import json as module

    monkeypatch.setattr(module, "dumps", module.dumps)
    one = session(
        "spies: {dumps: {function: json.dumps}}\nsteps: [{api: {call: json.dumps, args: [3]}, "
        "expect: [{calls: {of: dumps}}]}]"
    )
    for _ in range(2002):
        module.dumps(3)
    assert one.spies["dumps"].facts() == {"count": 2002, "entries": [{}] * 2000}


def test_handlers_hold_from_their_value_to_the_end(session, torch):
    from torch._inductor.virtualized import V

    before = V.debug
    one = session(
        "prelude: |\n  from torch._inductor.virtualized import V\n  def current():\n      "
        "return V.debug\n"
        "let:\n  early: {call: current}\n  node: {call: unittest.mock.Mock}\n  late: {call: "
        "current}\nhandlers: {debug: {ref: node}}\n"
        "steps: [{api: {call: current, as: now}, expect: [{runs: {}}]}]"
    )
    node = one.scope.named("node")
    assert one.scope.named("late") is node
    assert one.scope.named("early") is not node
    assert do(one) is node
    one.close()
    assert V.debug is not node
    assert type(V.debug) is type(before)


def test_weak_references_tell_the_living_from_the_dead(session):
    one = session(
        BOX + "  def drop(box):\n      box.inner = None\n"
        "let:\n  box: {call: Box, args: [{call: Box, args: [1]}]}\n"
        "steps:\n  - api: {call: drop, args: [{ref: box}]}\n    expect: [{dead: [box.inner, "
        "box.drop, box.parts]}]\n"
        "  - api: {call: builtins.id, args: [{ref: box}]}\n    expect: [{runs: {}}]"
    )
    assert one.names.weak["box.inner"].state() == {"was": True, "type": "Box", "alive": True}
    do(one)
    assert one.names.weak["box.inner"].state() == {"was": True, "type": "Box", "alive": False}
    assert one.names.weak["box.drop"].state()["was"] is False
    assert "box has no part 'drop': it is a Box" in one.names.weak["box.drop"].state()["type"]
    assert (
        one.names.weak["box.parts"].state()["was"] is False
    )  # a list cannot be referred to weakly


def test_what_the_prelude_defines_is_found_in_another_process(session, tmp_path):
    one = session(
        "prelude: |\n  class Request:\n      answer = 42\n  matrix = dict(vars(params))\n"
        "matrix: {size: [3]}\n"
        "steps: [{api: {call: Request, as: made}, expect: [{runs: {}}]}]"
    )
    name = type(do(one)).__module__
    code = (
        f"import pickle, {name} as m; print(m.Request.answer, m.matrix['size'], "
        "pickle.loads(pickle.dumps(m.Request())).answer)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
        timeout=240,
    )
    assert child.stdout.split() == ["42", "3", "42"], child.stderr


def test_a_child_that_raises_leaves_its_code_and_its_words(session, tmp_path):
    """Its own process, because a child of multiprocessing writes to the standard error of the
    program.
    """
    spec = tmp_path / "child.yaml"
    spec.write_text(
        HOST
        + "prelude: |\n  def fail(x):\n      raise RuntimeError('planted in the child')\n  def "
        "write(x):\n      x.fill_(5)\n"
        "let:\n  box: {zeros: [2]}\n"
        "steps:\n  - spawn: {call: fail, args: [1]}\n    expect:\n"
        "      - exit: {nonzero: true, stderr: planted in the child}\n      - exit: {code: 1, "
        "stderr: ['RuntimeError: planted']}\n"
        "  - spawn: {call: write, args: [{ref: box}]}\n    expect: [{exit: {code: 0}}, "
        "{equals: {box: [5.0, 5.0]}}]\n"
    )
    run = prestarted_program("run", spec, "--out", tmp_path / "run")
    assert run.returncode == 0, run.stdout + run.stderr
