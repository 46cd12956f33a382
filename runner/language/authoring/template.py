"""New specs that run as they are written, to begin from."""

from collections.abc import Mapping, Sequence

_FUNCTION = """\
function: |
  def fn(x, y):
      return (x * y).relu()
inputs:
  - {randn: [64, 64]}
  - {randn: [64, 64]}
expect:
  - close: {to: eager}
  - counter: {stats.unique_graphs: 1}    # no graph break, no recompilation
"""

_MODULE = """\
prelude: |
  class Scaled(torch.nn.Module):
      def __init__(self, width):
          super().__init__()
          self.linear = torch.nn.Linear(width, width)

      def forward(self, x):
          return self.linear(x) * 0.5
function: {module: Scaled, args: [16], eval: true}
inputs: [{randn: [4, 16]}]
context: [no_grad]
expect:
  - close: {to: eager}
  - counter: {stats.unique_graphs: 1}
"""

_STEPS = """\
function: |
  def fn(x):
      return x.relu() + 1
inputs: [{randn: [8]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}, {counter: {stats.unique_graphs: 1}}]
  - call: {inputs: [{randn: [16]}]}
    expect: [{close: {to: eager}}, {counter: {stats.unique_graphs: 2}}]
"""

TEMPLATES: Mapping[str, tuple[str, str]] = {
    "function": ("A product through relu equals eager and is captured as one graph", _FUNCTION),
    "module": ("A scaled linear layer equals eager and is captured as one graph", _MODULE),
    "steps": ("A second size recompiles once, and each result equals eager", _STEPS),
}
"""The claim and the text of each template."""


def template(name: str, backends: Sequence[str]) -> str:
    """Return the text of a new spec."""
    claim, body = TEMPLATES[name]
    hint = "# Write one claim as one sentence. 'torch-conformance validate' gives the position of every problem.\n"
    return f"{hint}summary: {claim}\nbackends: [{', '.join(backends)}]\n{body}"
