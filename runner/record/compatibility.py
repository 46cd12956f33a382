"""Whether two recordings are of one run: what may differ between the machines and the parts of a run, each with its reason.

What is not in a table here must agree, so that a new option, fact or variable is compared until somebody says why not.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from runner.core import devices
from runner.record.journal import RunHeader

FREE_OPTIONS: Mapping[str, str] = {
    "jobs": "how many run at once changes no outcome",
    "junit": "where a report goes too",
    "no-kept": "what earlier runs found of the machine is asked anew",
    "out": "where a run lies",
    "resume": "a part that was cut off and gone on with is a part like any other",
    "shuffle": "the order of the cases changes no outcome",
    "shard": "which part it is; looked at by itself",
}
"""Options of ``run`` that may differ."""

FREE_FACTS: Mapping[str, str] = {
    "gpu_memory": "follows from the device, of which a driver reserves a little more or less",
    "platform": "the kernel's release; the versions that matter to a case stand beside it",
}
"""Facts of a machine that may differ; its name is never recorded."""

FREE_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "which of the machine's GPUs; what they are and how many is compared",
    "HIP_VISIBLE_DEVICES": "which of the machine's GPUs; what they are and how many is compared",
    "ROCM_PATH": "where ROCm lies on that machine; its version is compared",
    "CUDA_HOME": "where CUDA lies on that machine; its version is compared",
    "CUDA_PATH": "where CUDA lies on that machine; its version is compared",
    "TORCHINDUCTOR_CACHE_DIR": "every case gets a folder of its own",
    "TRITON_CACHE_DIR": "every case gets a folder of its own",
}
"""Environment variables that may differ."""

FACTS_OF_SOME: Mapping[str, str] = {
    "vec_isa": "which vector instructions torch takes, only a worker that was made warm for the CPU has found out",
}
"""Facts of a machine that must agree where both sides tell them."""

_OF_FILES = frozenset({"torch", "torch_git", "python", *(build.version for build in devices.builds())})
"""Facts that are recorded of every machine; the others only where some case could run, so that a worker was asked."""

_ASKED = "gpus"
"""A fact that every worker tells."""

_AS_COMPARED: Mapping[str, Callable[[str], str]] = {
    "python": lambda version: ".".join(version.split(".")[:2]),
    "ck_dir": lambda folder: "installed" if folder else "",
}
"""Facts of which only a part must agree: Python's minor version, and whether Composable Kernel is there."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that should agree: what, here and there; what one side lacks is empty."""

    what: str
    here: str
    there: str

    def between(self, here: str, there: str) -> str:
        """Return it in words, with names for the two sides."""
        return f"{self.what} is {_shown(self.here)} {here}, {_shown(self.there)} {there}"


def differences(here: RunHeader, there: RunHeader) -> list[Difference]:
    """Return everything that differs between two parts of one run and should not."""
    return [
        *_differing("the version of this program", {"": here.version}, {"": there.version}),
        *option_differences(here.options, there.options),
        *_differing("the file", _cut(here.specs), _cut(there.specs)),
        *variable_differences(here.variables, there.variables),
        *machine_differences(here.environment, there.environment),
    ]


def option_differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[Difference]:
    """Return the options that differ and are not free to."""
    return list(_differing("--", here, there, FREE_OPTIONS))


def variable_differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[Difference]:
    """Return the environment variables that differ and are not free to."""
    return list(_differing("$", here, there, FREE_VARIABLES))


def machine_differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[Difference]:
    """Return the facts of the machine that differ and are not free to; of one that no worker was asked about, the files' alone."""
    mine, theirs = _compared(here), _compared(there)
    if not (_ASKED in here and _ASKED in there):
        mine, theirs = ({name: facts[name] for name in facts if name in _OF_FILES} for facts in (mine, theirs))
    untold = {name for name in FACTS_OF_SOME if not (name in mine and name in theirs)}
    mine, theirs = ({name: facts[name] for name in facts if name not in untold} for facts in (mine, theirs))
    return list(_differing("the machine's", mine, theirs, FREE_FACTS))


def _compared(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: _AS_COMPARED.get(name, str)(value) for name, value in facts.items()}


def _differing(what: str, here: Mapping[str, str], there: Mapping[str, str], free: Mapping[str, str] | None = None) -> Iterator[Difference]:
    for name in sorted(here.keys() | there.keys()):
        if name not in (free or ()) and here.get(name, "") != there.get(name, ""):
            joined = what + name if what in ("--", "$") else f"{what} {name}".strip()
            yield Difference(joined, here.get(name, ""), there.get(name, ""))


def _cut(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest[:12] for name, digest in digests.items()}


def _shown(value: str) -> str:
    return f"'{value}'" if value else "none"
