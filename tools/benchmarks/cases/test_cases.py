"""The specs of ``../specs`` as plain pytest tests, as PyTorch writes its own: eager first, then the
compiled function, the numbers compared and a counter asserted.

``BENCH_DEVICE`` says where they run (``cpu`` when it is unset).
"""

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

DEVICE = os.environ.get("BENCH_DEVICE", "cpu")
SPECS = sorted(Path(__file__).parents[1].joinpath("specs").glob("*.yaml"))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Give each test an inductor cache folder of its own and a dynamo that knows nothing: else it
    is served what another compiled.
    """
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with fresh_cache():
        yield
    torch._dynamo.reset()


def made(data: dict[str, Any]) -> torch.Tensor:
    """Return an input, made on the CPU and moved, as the runner makes it."""
    if "randn" in data:
        tensor = torch.randn(data["randn"])
    else:
        tensor = torch.randint(data["low"], data["high"], data["randint"])
    return tensor.to(DEVICE).requires_grad_(data.get("requires_grad", False))


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_case(file: Path) -> None:
    """Compare the compiled function with eager on copies, in a backward its gradients too; no
    graph comes from a cache.
    """
    spec = yaml.safe_load(file.read_text("utf-8"))
    names: dict[str, Any] = {"torch": torch}
    exec(spec["function"], names)
    compiled = torch.compile(names["fn"], **spec.get("compile", {}))
    observed, expected, inputs, copies = None, None, [], []
    for step in spec.get("steps", [{"call": {}, "expect": spec.get("expect")}]):
        pairs: Any
        if "call" in step:
            inputs = [made(data) for data in step["call"].get("inputs", spec.get("inputs"))]
            copies = copy.deepcopy(inputs)
            expected, observed = names["fn"](*copies), compiled(*inputs)
            pairs = observed, expected
        else:
            expected.sum().backward()
            observed.sum().backward()
            pairs = [x.grad for x in inputs], [x.grad for x in copies]
        for expectation in step["expect"]:
            for name, count in expectation.get("counter", {}).items():
                group, _, counter = name.partition(".")
                assert counters[group][counter] == count
            if "close" in expectation:
                tolerance = expectation["close"].get("atol")
                torch.testing.assert_close(*pairs, atol=tolerance, rtol=tolerance)
