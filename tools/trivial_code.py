"""``python -m tools.trivial_code``: write the code and the graphs of trivial functions, on which no
claim about code may hold.

What two of them have in common is boilerplate. They are made by the installed torch, on the CPU and
for simulated GPUs.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from torch_conformance.model.targets import STAGES_OF_VENDOR

ROOT = Path(__file__).resolve().parents[1]

SPEC = """
summary: A trivial function
{where}
inputs: [{{rand: [{size}]}}]
function: |
  def fn(x):
      return {body}
expect: [{claims}]
"""
GRAPHS = ("dynamo", "pre_grad", "joint", "post_grad")
TARGETS = {"cuda:sm_90": "nvidia", "hip:gfx942": "amd"}
FILE = ROOT / "runner" / "torch_conformance" / "vocabulary" / "expectations" / "trivial_code.json"
FUNCTIONS = (("x + 1", 65536), ("x.flip(0)", 96))
"""What differs in code: whether it is vectorized and parallel, whether reads have masks, and their
order.
"""
OTHER = ("x.neg()", 96)
"""In place of the second for graphs: its operator is of ATen too."""


def main() -> None:
    """Run the functions, and write what torch made of them."""
    made: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        graphs = ", ".join(f"{{graph: {{stage: {stage}, count: 1}}}}" for stage in GRAPHS)
        for number, function in enumerate(FUNCTIONS):
            folder = _ran(
                Path(name) / f"cpu{number}", *function, "backends: [cpu]", "{close: {to: eager}}"
            )
            made.setdefault("cpu", []).append((folder / "code-0-0.txt").read_text())
            for target, vendor in TARGETS.items():
                wrapper = "{filecheck: {stage: wrapper, checks: 'CHECK: {{fused_(add|flip)}}'}}"
                folder = _ran(
                    Path(name) / f"{vendor}{number}", *function, f"targets: ['{target}']", wrapper
                )
                texts = [path.read_text() for path in sorted(folder.glob("code-0-*.txt"))]
                for stage, text in zip(STAGES_OF_VENDOR[vendor], texts, strict=False):
                    made.setdefault(f"{vendor} {stage}", []).append(text)
                if vendor == "nvidia":
                    made.setdefault("cuda", []).append(texts[-1])
        for number, function in enumerate((FUNCTIONS[0], OTHER)):
            folder = _ran(Path(name) / f"graphs{number}", *function, "backends: [cpu]", graphs)
            measured = json.loads((folder / "observation.json").read_text())["steps"][0]["measured"]
            for index, stage in enumerate(GRAPHS):
                made.setdefault(stage, []).append(measured[str(index)]["graphs"][0]["text"])
    # comments name files of the machine
    plain = {kind: [re.sub(r"/\w\S*/", "", text) for text in texts] for kind, texts in made.items()}
    FILE.write_text(json.dumps(plain, indent=1) + "\n")


def _ran(folder: Path, body: str, size: int, where: str, claims: str) -> Path:
    """Run a function, and return the folder of the case.

    That its claims hold for any function does not matter.
    """
    folder.mkdir()
    spec = folder / "fn.yaml"
    spec.write_text(SPEC.format(body=body, size=size, where=where, claims=claims).lstrip())
    subprocess.run(
        [sys.executable, "-m", "torch_conformance", "run", spec, "--out", folder / "out"],
        cwd=ROOT,
        check=False,
        timeout=240,
    )
    return folder / "out" / "cases" / "00001"


if __name__ == "__main__":
    main()
