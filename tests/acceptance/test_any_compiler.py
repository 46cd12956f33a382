"""The guide to another compiler, with OpenVINO: its commands in their order, and the outcomes that
it promises.
"""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tests.fences import FILES, ROOT, fences, run_in, write
from torch_conformance.model.outcomes import ExitCode

PAGE = ROOT / "docs" / "guides" / "any-compiler.md"

OUTCOMES = {
    "first": {
        "gated-sum": "PASS",
        "running-product": "FELL_BACK",
    },  # a product is right where the CPU has no AMX
    "second": {"gated-sum": "PASS", "product": "PASS", "running-product": "PASS"},
    "models": {
        f"models/{name}-forward": "PASS" for name in ("conv-net", "lstm", "transformer-block")
    },
}


@pytest.mark.nightly(
    reason="needs OpenVINO, an extra; compilers of tests/compilers are always judged"
)
@pytest.mark.torch
@pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="openvino is not installed"
)
@pytest.mark.timeout(3000)
def test_every_step_of_the_guide(tmp_path: Path) -> None:
    page = fences(PAGE)
    for fence in page:
        if fence.mark in FILES:
            write(fence, tmp_path)
    lines = [
        shlex.split(line)
        for fence in page
        if fence.mark == "commands"
        for line in fence.text.splitlines()
    ]
    for program, *words in lines:
        if program == "pip":
            continue
        done = run_in(
            tmp_path,
            *(str(ROOT / word) if word.startswith("specs/") else word for word in words),
            timeout=1500,
        )
        name = words[words.index("--out") + 1] if "--out" in words else ""
        assert done.returncode == (
            ExitCode.FAILED if name in ("first", "operators") else ExitCode.OK
        ), done.stdout + done.stderr
        outcomes = {
            case: outcome
            for outcome, case in re.findall(
                r"(?m)^([A-Z_]+) +[0-9]+/[0-9]+ .*?'([^[]+)\[", done.stdout + done.stderr
            )
        }
        assert outcomes.items() >= OUTCOMES.get(name, {}).items(), done.stdout
    assert "| served |" in (tmp_path / "support.md").read_text("utf-8")
