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
from collections.abc import Mapping
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
FORMS = {
    "pointwise": (("x + 1", 65536), ("x.flip(0)", 96)),
    "vectorized": (("x + 1", 65536), ("x.neg()", 65536)),
    "reduction": (("x.sum()", 65536), ("x.amax()", 65536)),
}
"""Two functions of each form of code. What differs in those of the first: whether it is vectorized,
whether reads have masks, and their order.
"""
POINTWISE = "pointwise"
"""The form of stages and graphs, whose instructions are what specs claim."""
OTHER = ("x.neg()", 96)
"""In place of the second for graphs: its operator is of ATen too."""


CALLS = """
import collections, json, os, sys, tempfile, threading

empty = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = empty.name
import torch

called = collections.defaultdict(set)

def profile(frame, event, argument):
    name, module = frame.f_code.co_qualname, frame.f_globals.get("__name__", "")
    of_compiler = module.startswith(("torch._dynamo.", "torch._functorch.", "torch._inductor."))
    if event == "call" and of_compiler and "<" not in name:
        called[module].add(name.removesuffix(".__init__"))

compiled = torch.compile(lambda x: x + 1)
threading.setprofile(profile)
sys.setprofile(profile)
compiled(torch.rand(64))
sys.setprofile(None)
print(json.dumps({module: sorted(called[module]) for module in sorted(called)}))
"""
"""Python that prints the functions of the compiler that the first of ``FORMS`` calls."""


def main() -> None:
    """Run the functions, and write what torch made of them."""
    graphs = ", ".join(f"{{graph: {{stage: {stage}, count: 1}}}}" for stage in GRAPHS)
    wrapper = "{filecheck: {stage: wrapper, checks: 'CHECK: {{fused_[a-z]+}}'}}"
    # beside the form and the number: where the function runs, and what is claimed of it
    runs = {
        "cpu": ("backends: [cpu]", "{close: {to: eager}}"),
        **{vendor: (f"targets: ['{target}']", wrapper) for target, vendor in TARGETS.items()},
    }
    functions = {
        f"{form}-{number}-{place}": (function, *run)
        for form, two in FORMS.items()
        for number, function in enumerate(two)
        for place, run in runs.items()
        if place != "amd" or form == POINTWISE
    }
    for number, function in enumerate((FORMS[POINTWISE][0], OTHER)):
        functions[f"{POINTWISE}-{number}-graphs"] = (function, "backends: [cpu]", graphs)
    made: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as name:
        cases = _ran(Path(name), functions)
        for spec in functions:
            form, _, place = spec.split("-")
            texts = {}
            if place == "graphs":
                sent = json.loads((cases[spec] / "observation.json").read_text())["steps"][0]
                for index, stage in enumerate(GRAPHS):
                    texts[stage] = sent["measured"][str(index)]["graphs"][0]["text"]
            elif place == "cpu":
                texts["cpu"] = (cases[spec] / "code-0-0.txt").read_text()
            else:
                code = [path.read_text() for path in sorted(cases[spec].glob("code-0-*.txt"))]
                if form == POINTWISE:
                    stages = (f"{place} {stage}" for stage in STAGES_OF_VENDOR[place])
                    texts = dict(zip(stages, code, strict=False))
                if place == "nvidia":
                    texts["cuda"] = code[-1]
            for kind, text in texts.items():
                # comments name files of the machine
                plain = re.sub(r"/\w\S*/", "", text)
                made.setdefault(kind, {}).setdefault(form, []).append(plain)
    calls = subprocess.run(
        [sys.executable, "-c", CALLS], check=True, capture_output=True, text=True, timeout=240
    )
    made["calls"] = json.loads(calls.stdout.splitlines()[-1])
    FILE.write_text(json.dumps(made, indent=1) + "\n")


def _ran(
    folder: Path, functions: Mapping[str, tuple[tuple[str, int], str, str]]
) -> dict[str, Path]:
    """Run functions, and return the folders of their cases by the names of their specs.

    That the claims hold for any function does not matter.
    """
    for name, ((body, size), where, claims) in functions.items():
        text = SPEC.format(body=body, size=size, where=where, claims=claims)
        (folder / f"{name}.yaml").write_text(text.lstrip())
    subprocess.run(
        [sys.executable, "-m", "torch_conformance", "run", folder, "--out", folder / "out"],
        cwd=ROOT,
        check=False,
        timeout=600,
    )
    entries = map(json.loads, (folder / "out" / "run.jsonl").read_text().splitlines())
    return {
        entry["name"]: folder / "out" / entry["folder"]
        for entry in entries
        if entry["kind"] == "case"
    }


if __name__ == "__main__":
    main()
