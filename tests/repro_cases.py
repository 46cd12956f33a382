"""Specs for the scripts of ``repro``: of each kind of expectation and of step one that passes, and where it can one that fails.

``{…}`` of a row is replaced: ``good`` is what the expectation says where the case passes, ``bad`` what it says where it fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FUNCTION = "function: |\n  def fn(x):\n      return x + 1\ninputs: [{ones: [3]}]\n"
EAGER = "compile: {backend: eager}\n"


@dataclass(frozen=True)
class Row:
    """One spec. ``text`` has ``@`` where ``good`` or ``bad`` stands; ``bad`` is empty where no script of it is judged."""

    text: str
    good: str
    bad: str = ""
    backend: str = "cpu"
    slow: bool = False
    """Whether it needs inductor."""

    def bodies(self) -> list[tuple[str, str]]:
        """Return what it is filled with, by name."""
        return [(name, body) for name, body in (("good", self.good), ("bad", self.bad)) if body]

    def spec(self, body: str) -> str:
        """Return the spec with a body in its place. Cases of dynamo alone have the backend for it: on another one they would fall back."""
        backend = "eager" if EAGER in self.text else self.backend
        return f"summary: A case for a script\nbackends: [{backend}]\n{self.text.replace(EAGER, '').replace('@', body)}"


def _of_call(kind: str, good: str, bad: str = "", *, slow: bool = False, before: str = FUNCTION) -> Row:
    return Row(f"{before}{'' if slow else EAGER}expect: [{{{kind}: @}}, {{runs: {{}}}}]\n", good, bad, slow=slow)


WRONG = "function: |\n  def fn(x):\n      return x + (2 if torch.compiler.is_compiling() else 1)\ninputs: [{ones: [3]}]\n"
"""Eager and compiled answers differ."""

RAISES = "function: |\n  def fn(x):\n      raise ZeroDivisionError('divided by a planted zero')\ninputs: [{ones: [3]}]\n"
SPY = (
    "prelude: |\n  import math\n\n  def record(x):\n      return {'x': x}\n\n  def call():\n      return math.floor(2.5)\n"
    "spies: {floors: {function: math.floor, record: record}}\nsteps: [{api: {call: call, as: found}, expect: [@]}]\n"
)
CHILD = "steps: [{spawn: {program: python, argv: [-c, \"import sys; sys.stderr.write('planted words'); sys.exit(3)\"]}, expect: [@]}]\n"
PRINTING = (
    "prelude: |\n  import sys\n\n  def shout():\n      print('planted words', file=sys.stderr)\n"
    "steps: [{api: {call: shout}, expect: [@]}]\n"
)
VALUE = "prelude: |\n  def found():\n      return [1, 2.5, 'planted words']\nsteps: [{api: {call: found, as: first}, expect: [@]}]\n"
KERNEL = "function: |\n  def fn(x, y):\n      return (x * y).relu().sum(dim=0)\ninputs: [{randn: [8, 8]}, {randn: [8, 8]}]\n"

EXPECTATIONS: Mapping[str, Row] = {
    "close": Row(f"{WRONG}{EAGER}expect: [{{close: @}}]\n", "{to: eager, atol: 2.0, rtol: 0.0}", "{to: eager}"),
    "counter": _of_call("counter", "{stats.unique_graphs: 1}", "{stats.unique_graphs: 2}"),
    "metric": _of_call("metric", "{generated_kernel_count: {min: 1}}", "{generated_kernel_count: 77}", slow=True, before=KERNEL),
    "filecheck": _of_call("filecheck", '"CHECK: cpp_fused"', '"CHECK: planted_kernel"', slow=True, before=KERNEL),
    "raises": Row(f"{RAISES}{EAGER}expect: [{{raises: @}}]\n", "{type: ZeroDivisionError, match: planted}", "{type: KeyError}"),
    "equals": Row(VALUE, "{equals: {first: [1, 2.5, planted words]}}", "{equals: {first.0: 2}}", backend="host"),
    "differs": Row(VALUE, "{differs: {first.0: 2}}", "{differs: {first.1: 2.5}}", backend="host"),
    "strides": _of_call("strides", "{equals: [1]}", "{equals: [2]}"),
    "generated_files": _of_call("generated_files", "1", "2", slow=True, before=KERNEL),
    "runs": Row(f"{RAISES}{EAGER}expect: [@]\n", "{raises: {type: ZeroDivisionError}}", "{runs: {}}"),
    "calls": Row(SPY, "{calls: {of: floors, where: {x: 2.5}, count: 1}}", "{calls: {of: floors, count: 2}}", backend="host"),
    "exit": Row(CHILD, "{exit: {code: 3, stderr: planted words}}", "{exit: {code: 0}}", backend="host"),
    "text": Row(
        VALUE, "{text: {of: first.2, contains: planted, count: 1}}", "{text: {of: first.2, contains: other words}}", backend="host"
    ),
    "log": Row(PRINTING, "{log: {contains: planted words, count: 1}}", "{log: {contains: planted words, count: 2}}", backend="host"),
    "dead": Row(
        "prelude: |\n  class Thing:\n      pass\n\n  class Holder:\n      pass\n\n  kept = []\n  holder = Holder()\n"
        "  holder.thing = Thing()\n\n  def drop(keep):\n      kept.extend([holder.thing] if keep else [])\n      del holder.thing\n"
        "steps: [{api: {call: drop, args: [@]}, expect: [{dead: [holder.thing]}]}]\n",
        "false",
        "true",
        backend="host",
    ),
    "deterministic": Row(
        "prelude: |\n  import itertools\n  numbers = itertools.count()\n\n  def number():\n      return next(numbers)\n"
        "function: |\n  def fn(x):\n      torch._dynamo.graph_break()\n      return x + @\ninputs: [{ones: [3]}]\n"
        f"{EAGER}expect: [{{deterministic: {{runs: 2}}}}, {{runs: {{}}}}]\n",
        "1",
        "torch.full((3,), float(number()))",
    ),
    "remote_cache": Row(
        f"services: [redis]\nconfig: {{fx_graph_remote_cache: true}}\n{FUNCTION}expect: [{{remote_cache: @}}, {{runs: {{}}}}]\n",
        "{RemoteFxGraphCache: {miss: 1}}",
    ),
    "kernels": _of_call("kernels", "{launched: {min: 1}}"),
    "graph": _of_call("graph", "{stage: dynamo, count: 1, ops: {operator.add: 1}}", "{stage: dynamo, ops: {operator.add: 2}}"),
    "guards": _of_call("guards", "{count: {min: 1}, contains: \"L['x']\"}", "{contains: \"L['planted']\"}"),
    "recompiles": Row(
        f"{FUNCTION}{EAGER}steps: [{{call: {{}}}}, {{call: {{inputs: [{{ones: [4]}}]}}, expect: [{{recompiles: @}}]}}]\n",
        "{count: 1, reason: {contains: size mismatch at index 0}}",
        "{count: 1, reason: {contains: planted words}}",
    ),
    "graph_breaks": Row(
        "function: |\n  def fn(x):\n      torch._dynamo.graph_break()\n      return x + 1\n"
        f"inputs: [{{ones: [3]}}]\n{EAGER}expect: [{{graph_breaks: @}}]\n",
        "{count: 1, reason: {contains: User-inserted graph break}}",
        "{count: 2}",
    ),
    "batch_invariant": Row(
        "function: |\n  def fn(x):\n      return x + @\ninputs: [{ones: [3]}]\n"
        f"{EAGER}expect: [{{batch_invariant: {{dim: 0}}}}, {{runs: {{}}}}]\n",
        "1",
        "x.shape[0]",
    ),
    "poisoned": _of_call("poisoned", "true"),
    "candidates": _of_call("candidates", "{at_most: 4}", slow=True, before=f"config: {{max_autotune: true}}\n{KERNEL}"),
    "choices": _of_call("choices", "{backend: ATEN, timed: {min: 1}}", slow=True, before=f"config: {{max_autotune: true}}\n{KERNEL}"),
}
"""By kind of expectation. Those of kernels for a target are in ``OFFLINE``."""

OFFLINE = ("resources", "metadata")
"""Kinds of expectations of a step ``triton``: no script has the compilers of a target."""

_MODULE = (
    "prelude: |\n  class Line(torch.nn.Module):\n      def __init__(self):\n          super().__init__()\n"
    "          self.weight = torch.nn.Parameter(torch.ones(3))\n\n      def forward(self, x):\n"
    "          return x * self.weight * (@ if torch.compiler.is_compiling() else 1)\n"
    f"function: {{module: Line}}\ninputs: [{{ones: [3]}}]\n{EAGER}"
)
_CLOSE = "expect: [{close: {to: eager}}]"

STEPS: Mapping[str, Row] = {
    "call": Row(
        f"{WRONG}{EAGER}steps: [{{call: {{as: first}}, expect: [{{equals: {{first: @}}}}]}}]\n", "[3.0, 3.0, 3.0]", "[2.0, 2.0, 2.0]"
    ),
    "aot": Row(
        f"{FUNCTION}steps: [{{aot: {{as: first}}, expect: [{{equals: {{first: @}}}}]}}]\n", "[2.0, 2.0, 2.0]", "[1.0, 2.0, 2.0]", slow=True
    ),
    "backward": Row(f"{_MODULE}steps: [{{call: {{}}, expect: [{{runs: {{}}}}]}}, {{backward: {{}}, {_CLOSE}}}]\n", "1", "2"),
    "optimizer": Row(
        f"{_MODULE}steps: [{{call: {{}}, expect: [{{runs: {{}}}}]}}, {{backward: {{}}, expect: [{{runs: {{}}}}]}},"
        f" {{optimizer: {{call: torch.optim.SGD, kwargs: {{lr: 0.1}}}}, {_CLOSE}}}]\n",
        "1",
        "2",
    ),
    "reset": Row(
        f"{FUNCTION}{EAGER}steps: [{{call: {{}}}}, {{reset: [dynamo]}},"
        " {call: {}, expect: [{counter: {stats.unique_graphs: @}}]}]\n",
        "2",
        "1",
    ),
    "clear_counters": Row(
        f"{FUNCTION}{EAGER}steps: [{{call: {{}}}}, {{clear_counters: {{}}}}, {{reset: [dynamo]}},"
        " {call: {}, expect: [{counter: {stats.unique_graphs: @}}]}]\n",
        "1",
        "2",
    ),
    "delete_modules": Row(
        f"{KERNEL}steps: [{{call: {{}}}}, {{delete_modules: {{}}}}, {{reset: [dynamo]}},"
        " {call: {}, expect: [{counter: {inductor.fxgraph_cache_hit: @}}]}]\n",
        "1",
        "2",
        slow=True,
    ),
    "fresh_cache": Row(
        f"{KERNEL}steps: [{{call: {{}}}}, {{fresh_cache: {{}}}}, {{reset: [dynamo]}},"
        " {call: {}, expect: [{counter: {inductor.fxgraph_cache_miss: @}}]}]\n",
        "2",
        "1",
        slow=True,
    ),
    "api": EXPECTATIONS["equals"],
    "spawn": EXPECTATIONS["exit"],
    "script": Row(
        f"{FUNCTION}{EAGER}steps:\n  - script:\n      code: |\n        def check(compiled):\n"
        "            return compiled(torch.ones(2)).tolist()\n"
        "      as: seen\n    expect: [{equals: {seen: @}}]\n",
        "[2.0, 2.0]",
        "[1.0, 2.0]",
    ),
    "bench": Row(f"{FUNCTION}{EAGER}steps: [{{call: {{}}, expect: [{{runs: {{}}}}]}}, {{bench: @}}]\n", "{repeat: 2}"),
}
"""By kind of step. ``samples`` has a script of its own, and ``triton`` none."""


def rows() -> dict[str, Row]:
    """Return every row once, by its word."""
    seen: dict[str, Row] = {}
    for word, row in (*EXPECTATIONS.items(), *STEPS.items()):
        if not any(row is one for one in seen.values()):
            seen[word] = row
    return seen
