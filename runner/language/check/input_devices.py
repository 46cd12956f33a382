"""Checks ``device`` of inputs: a device of torch itself, or one that each backend of the spec registers."""

from collections.abc import Iterator, Sequence

from runner.core import devices
from runner.core.diagnostics import Diagnostic, unknown
from runner.core.template_form import is_template
from runner.language.backends import Backend, Backends
from runner.language.check.functions import input_values
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath


def device_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the devices that the backends of a spec do not have."""
    names = anatomy.data["backends"]
    if all(name in backends.by_name for name in names):
        yield from problems_of(anatomy, backends.of(names, anatomy.tags))


def problems_of(anatomy: Anatomy, chosen: Sequence[Backend], among: Sequence[DataPath] = ((),)) -> Iterator[Diagnostic]:
    """Yield the devices, at or below the paths of ``among``, that one of these backends does not have.

    Only a worker can know whether the machine has a device of torch's own.
    """
    kinds = {backend.name: devices.kind_of(backend.device) for backend in chosen}
    for path, entry in input_values(anatomy):
        if not any((*path, "device")[: len(start)] == start for start in among):
            continue
        device = entry.get("device")
        if not isinstance(device, str) or is_template(device) or (kind := devices.kind_of(device)) in devices.WITHOUT_MODULE:
            continue
        if kind not in kinds.values():
            known = sorted({*devices.WITHOUT_MODULE, *kinds.values()})
            yield anatomy.document.problem((*path, "device"), *unknown("device", device, known))
        elif other := next((name for name, own in kinds.items() if own != kind), ""):
            hint = f"without 'device' each backend uses its own; or write a spec for the backends whose device is {kind}"
            yield anatomy.document.problem((*path, "device"), f"the backend '{other}' has no device '{kind}'", hint)
