"""Compatibility of two recordings: the tables list what may differ between machines, and between parts of a run, with the reasons.

Everything else must be equal: a new option, fact or variable is compared until it is added to a table.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass

from runner.model import devices
from runner.model.header import RunHeader
from runner.model.options import free_options

FREE_FACTS: Mapping[str, str] = {
    "gpu_memory": "follows from the device; a driver reserves a little more or less of it",
    "platform": "the kernel's release; versions that matter to a case are separate facts",
}
"""Facts of a machine that may differ; its host name is never recorded."""

FREE_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "which of the machine's GPUs; what they are and how many is compared",
    "HIP_VISIBLE_DEVICES": "which of the machine's GPUs; what they are and how many is compared",
    "ROCM_PATH": "the path of ROCm on that machine; its version is compared",
    "CUDA_HOME": "the path of CUDA on that machine; its version is compared",
    "CUDA_PATH": "the path of CUDA on that machine; its version is compared",
    "TORCHINDUCTOR_CACHE_DIR": "every case gets a folder of its own",
    "TRITON_CACHE_DIR": "every case gets a folder of its own",
}
"""Environment variables that may differ."""

FACTS_OF_SOME: Mapping[str, str] = {
    "vec_isa": "torch's vector instructions are probed only by a worker that is warmed up for the CPU",
}
"""Facts of a machine that are compared only if both sides have them."""

_OF_FILES = frozenset({"torch", "torch_git", "python", *(build.version for build in devices.builds())})
"""Facts that are recorded for every machine. The other facts are recorded only if some case could run: a worker reports them."""

_REPORTED = "gpus"
"""A fact that every worker reports."""

_AS_COMPARED: Mapping[str, Callable[[str], str]] = {
    "python": lambda version: ".".join(version.split(".")[:2]),
    "ck_dir": lambda folder: "installed" if folder else "",
}
"""Facts that are compared in part: Python's minor version, and whether Composable Kernel is installed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that should not be: the name, and the value of each side; empty where a side has none."""

    what: str
    first: str
    second: str

    def between(self, first: str, second: str) -> str:
        """Return the difference in words; ``first`` and ``second`` are the names of the two sides."""
        return f"{self.what} is {_shown(self.first)} {first}, {_shown(self.second)} {second}"


def differences(first: RunHeader, second: RunHeader, *, same_machine: bool = True) -> list[Difference]:
    """Return every difference between two parts of one run that should not be; those of machines only with ``same_machine``."""
    return [
        *_differing("the version of this program", {"": first.version}, {"": second.version}),
        *option_differences(first.options, second.options),
        *([] if first.profile == second.profile else [Difference("the profile", _profile(first), _profile(second))]),
        *_differing("the file", _cut(first.specs), _cut(second.specs)),
        *variable_differences(first.variables, second.variables),
        *(machine_differences(first.environment, second.environment) if same_machine else ()),
    ]


def _profile(header: RunHeader) -> str:
    return ", ".join(f"{profile.name} {profile.version} with {len(profile.required)} required cases" for profile in header.profile)


def option_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """Return the options that differ and may not."""
    return list(_differing("--", first, second, free_options()))


def variable_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """Return the environment variables that differ and are not in ``FREE_VARIABLES``."""
    return list(_differing("$", first, second, FREE_VARIABLES))


def machine_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """Return the facts that differ and are not in ``FREE_FACTS``; only the facts of files if no worker reported on one of the machines."""
    mine, theirs = _compared(first), _compared(second)
    if not (_REPORTED in first and _REPORTED in second):
        mine, theirs = ({name: facts[name] for name in facts if name in _OF_FILES} for facts in (mine, theirs))
    one_sided = {name for name in FACTS_OF_SOME if not (name in mine and name in theirs)}
    mine, theirs = ({name: facts[name] for name in facts if name not in one_sided} for facts in (mine, theirs))
    return list(_differing("the machine's", mine, theirs, FREE_FACTS))


def _compared(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: _AS_COMPARED.get(name, str)(value) for name, value in facts.items()}


def _differing(what: str, first: Mapping[str, str], second: Mapping[str, str], free: Container[str] = ()) -> Iterator[Difference]:
    for name in sorted(first.keys() | second.keys()):
        if name not in free and first.get(name, "") != second.get(name, ""):
            joined = what + name if what in ("--", "$") else f"{what} {name}".strip()
            yield Difference(joined, first.get(name, ""), second.get(name, ""))


def _cut(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest[:12] for name, digest in digests.items()}


def _shown(value: str) -> str:
    return f"'{value}'" if value else "none"
