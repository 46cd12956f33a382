"""What ``close: {to: eager}`` judges of each repetition of a step before the last. Equal repetitions are measured once."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations import close
from runner.vocabulary.expectations.close_rules import is_eager
from runner.worker.case.calibration import Calibrations
from runner.worker.case.names import Names
from runner.worker.case.reference import Reference
from runner.worker.torch_compat import compiling

MOST_VALUES = 10_000
"""The maximum number of values of earlier repetitions of a step that are sent; a repetition above it is an ERROR."""

_PLAIN = (bool, int, float, complex, str, type(None))


class EachRepetition:
    """The repetitions of the current step before the last."""

    def __init__(self, names: Names, reference: Reference, calibrations: Calibrations) -> None:
        self._names = names
        self._reference = reference
        self._calibrations = calibrations
        self._values = 0
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self.facts: dict[str, list[dict[str, Any]]] = {}
        """For each expectation, by its index, the repetitions that differ: ``first``, ``times``, and ``measured`` or ``why_not``."""

    def begin_step(self) -> None:
        """Forget the last step."""
        self._values, self._known, self.facts = 0, {}, {}

    def measure(self, step: Mapping[str, Any], number: int) -> None:
        """Measure what the repetition left."""
        for wanted in step["measure"]:
            if wanted["kind"] == "close" and is_eager(wanted["arguments"]["to"]):
                with torch.no_grad(), compiling.reference_stance():
                    self._measure(str(wanted["index"]), wanted["arguments"], number)

    def _measure(self, key: str, arguments: Mapping[str, Any], number: int) -> None:
        digest = self._digest(arguments)
        if digest is not None and (key, digest) in self._known:
            self._known[key, digest]["times"] += 1
            return
        entry: dict[str, Any] = {"first": number, "times": 1}
        self.facts.setdefault(key, []).append(entry)
        if digest is not None:
            self._known[key, digest] = entry
        if self._values > MOST_VALUES:
            entry["why_not"] = f"the repetitions before have more than {MOST_VALUES:,} values"
            return
        try:
            measured: Any = close.measure(arguments, self._names.values())
            for leaf in measured["leaves"]:
                leaf.pop("stand_ins", None)
            self._values += len(measured["leaves"])
            self._calibrations.defer(measured, arguments, self._names.value, with_stand_ins=False)
        except Exception as error:  # comparing values of a spec may raise anything
            entry["why_not"] = f"{type(error).__name__}: {error}"[:500]
        else:
            entry["measured"] = measured

    def _digest(self, arguments: Mapping[str, Any]) -> str | None:
        """Return a text that is equal for repetitions with equal inputs and results; None where that cannot be known."""
        call = self._reference.latest_call
        names = [arguments[word] for word in ("of", "to", "no_worse_than") if arguments.get(word)]
        hashed = hashlib.sha256()
        try:
            inputs = call.inputs if call is not None and isinstance(call.inputs, list) else []
            return hashed.hexdigest() if all(_add(hashed, value) for value in (inputs, *map(self._names.value, names))) else None
        except Exception:  # names and values of a spec may raise anything: the repetition is measured then, which reports it
            return None


def _add(hashed: Any, value: Any) -> bool:
    """Add a value; return whether all parts of it are known by their bits."""
    leaves, structure = pytree.tree_flatten(value)
    hashed.update(str(structure).encode())
    for leaf in leaves:
        if isinstance(leaf, torch.nn.Module):
            if not _add(hashed, [*leaf.parameters(), *leaf.buffers()]):
                return False
        elif isinstance(leaf, torch.Tensor):
            if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided or leaf.is_nested:
                return False
            hashed.update(f"{leaf.dtype} {list(leaf.shape)} {leaf.device} ".encode())
            hashed.update(leaf.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(leaf, _PLAIN):
            hashed.update(f"{type(leaf)} {leaf!r} ".encode())
        elif not callable(leaf):
            return False
    return True
