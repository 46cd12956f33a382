"""``python -m tools.trivial_code``: write the code and the graphs of two trivial functions, on which no claim about code may hold.

What both have in common is boilerplate. They are made by the installed torch on the CPU.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

STAGES = ("dynamo", "pre_grad", "joint", "post_grad")
FILE = ROOT / "runner" / "vocabulary" / "expectations" / "trivial_code.json"
SPEC = """
summary: A trivial function
backends: [cpu]
inputs: [{{rand: [{size}]}}]
function: |
  def fn(x):
      return {body}
expect: [{{close: {{to: eager}}}}, {graphs}]
"""


def main() -> None:
    """Run the functions, and write what torch made of them."""
    made: dict[str, list[str]] = {"cpu": [], **{stage: [] for stage in STAGES}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graphs = ", ".join(f"{{graph: {{stage: {stage}, count: 1}}}}" for stage in STAGES)
        for number, (body, size) in enumerate((("x + 1", 64), ("x.flip(0)", 96))):
            spec, out = folder / f"fn{number}.yaml", folder / f"out{number}"
            spec.write_text(SPEC.format(body=body, size=size, graphs=graphs).lstrip())
            subprocess.run([sys.executable, "-m", "runner", "run", spec, "--out", out], cwd=ROOT, check=True, timeout=240)
            made["cpu"].append((out / "cases" / "00001" / "code-0-0.txt").read_text())
            measured = json.loads((out / "cases" / "00001" / "observation.json").read_text())["steps"][0]["measured"]
            for index, stage in enumerate(STAGES, start=1):
                made[stage].append(measured[str(index)]["graphs"][0]["text"])
    # comments name files of the machine
    plain = {kind: [re.sub(r"/\S*/", "", text) for text in texts] for kind, texts in made.items()}
    FILE.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
