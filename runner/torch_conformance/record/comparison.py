"""What differs between two parts of one run, or between two runs: what is in no table here must be
equal in two parts.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass

from torch_conformance.model import devices
from torch_conformance.model.header import RunHeader
from torch_conformance.optional.options import free_options

FREE_FACTS: Mapping[str, str] = {
    "gpu_memory": "follows from the device; a driver reserves a little more or less of it",
    "platform": "the kernel's release; versions that matter to a case are separate facts",
}
"""Facts of a machine that may differ; its host name is never recorded."""

FREE_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "which of the machine's GPUs; their kind and number are compared",
    "HIP_VISIBLE_DEVICES": "which of the machine's GPUs; their kind and number are compared",
    "ROCM_PATH": "the path of ROCm on that machine; its version is compared",
    "CUDA_HOME": "the path of CUDA on that machine; its version is compared",
    "CUDA_PATH": "the path of CUDA on that machine; its version is compared",
    "TORCHINDUCTOR_CACHE_DIR": "every case gets a folder of its own",
    "TRITON_CACHE_DIR": "every case gets a folder of its own",
}
"""Environment variables that may differ."""

FACTS_OF_SOME: Mapping[str, str] = {
    "vec_isa": "torch's vector instructions are probed only by a worker "
    "that is warmed up for the CPU"
}
"""Facts of a machine that are compared only if both sides have them."""

_OF_FILES = frozenset(
    {"torch", "torch_git", "python", *(build.version for build in devices.builds())}
)
"""Facts that are recorded for every machine.

The other facts are recorded only if some case could run: a worker reports them.
"""

_REPORTED = "gpus"
"""A fact that every worker reports."""

_AS_COMPARED: Mapping[str, Callable[[str], str]] = {
    "python": lambda version: ".".join(version.split(".")[:2]),
    "ck_dir": lambda folder: "installed" if folder else "",
}
"""Facts that are compared in part: Python's minor version, and whether Composable Kernel is
installed.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that should not be: the name, and the value of each side; empty where a side has
    none.
    """

    what: str
    first: str
    second: str

    def between(self, first: str, second: str) -> str:
        """Return the difference in words; ``first`` and ``second`` are the names of the two
        sides.
        """
        return f"{self.what} is {_shown(self.first)} {first}, {_shown(self.second)} {second}"


def differences(
    first: RunHeader, second: RunHeader, *, same_machine: bool = True
) -> list[Difference]:
    """Return every difference between two parts of one run that should not be; those of machines
    only with ``same_machine``.
    """
    profiles = [
        ", ".join(
            f"{profile.name} {profile.version} with {len(profile.required)} required cases"
            for profile in header.profile
        )
        for header in (first, second)
    ]
    read = [
        {file: digest[:12] for file, digest in header.specs.items()} for header in (first, second)
    ]
    return [
        *_differing("the version of this program", {"": first.version}, {"": second.version}),
        *command_differences(first, second),
        *(
            []
            if first.profile == second.profile
            else [Difference("the profile", profiles[0], profiles[1])]
        ),
        *_differing("the file ", read[0], read[1]),
        *(machine_differences(first.environment, second.environment) if same_machine else ()),
    ]


def command_differences(first: RunHeader, second: RunHeader) -> list[Difference]:
    """Return the options and environment variables that differ and may not."""
    options = _differing("--", first.options, second.options, free_options())
    return [*options, *_differing("$", first.variables, second.variables, FREE_VARIABLES)]


def machine_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """Return the facts that differ and are not in ``FREE_FACTS``; only the facts of files if no
    worker reported on one of the machines.
    """
    names = (
        first.keys() | second.keys() if _REPORTED in first and _REPORTED in second else _OF_FILES
    )
    names -= {name for name in FACTS_OF_SOME if not (name in first and name in second)}
    sides = [
        {name: _AS_COMPARED.get(name, str)(facts[name]) for name in facts if name in names}
        for facts in (first, second)
    ]
    return list(_differing("the machine's ", sides[0], sides[1], FREE_FACTS))


def _differing(
    what: str, first: Mapping[str, str], second: Mapping[str, str], free: Container[str] = ()
) -> Iterator[Difference]:
    for name in sorted(first.keys() | second.keys()):
        if name not in free and first.get(name, "") != second.get(name, ""):
            yield Difference(what + name, first.get(name, ""), second.get(name, ""))


def _shown(value: str) -> str:
    return f"'{value}'" if value else "none"
