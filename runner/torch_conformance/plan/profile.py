"""A profile as a value: which cases must pass, in levels, and which waivers may excuse a failure;
what the core asks of the tool that reads it.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch_conformance.language.load import Suite
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.case import Case
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.header import ProfileRecord
from torch_conformance.model.values import frozen
from torch_conformance.model.waivers import WaiverFiles
from torch_conformance.optional.options import RunOptions
from torch_conformance.optional.tools import hooks


@dataclass(frozen=True, slots=True)
class Entry:
    """Cases of a level. Every key that is not empty must hold."""

    level: str
    kind: str
    """``required`` or ``optional``."""
    cases: tuple[str, ...]
    tags: tuple[str, ...]
    backends: tuple[str, ...]
    left_out: tuple[str, ...]
    when: Mapping[str, Any]
    """The condition under which they are required; empty for none."""
    place: DataPath
    """Its path in the file."""


@frozen
class Profile:
    """A profile as written. Paths of files are as a command in the working folder names them."""

    name: str
    version: str
    """Also says where a file has the name of a shipped profile and is another file."""
    summary: str
    torch: str
    specs: tuple[Path, ...]
    """Paths for ``load``; empty for only the shipped specs."""
    backends: tuple[Path, ...]
    permitted: tuple[Path, ...]
    """The files of waivers that it permits."""
    levels: tuple[str, ...]
    """The names of its levels, the most important one first."""
    entries: tuple[Entry, ...]
    """Those that are required first, each kind in the order of the levels."""
    document: Document
    most_waived: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The limit of waived cases of a level by its name: ``percent`` and ``reason``; empty for the
    usual one.
    """
    most_by_aten: float = 100
    """Of how many of 100 required cases ATen may have computed the whole answer."""
    is_for_any: bool = False
    """Whether it is for any compiler: a run of it names one backend, and the compiler itself must
    compute what is required.
    """
    compiler: str = ""
    """The backend that a run of such a profile names."""

    @property
    def waivers(self) -> tuple[Path, ...]:
        """The permitted files of waivers.

        The shipped file is left out: every run reads it already.
        """
        shipped = os.path.realpath(folder("specs") / "waivers.yaml")
        return tuple(
            dict.fromkeys(file for file in self.permitted if os.path.realpath(file) != shipped)
        )


@frozen
class Resolved:
    """A profile with everything that it names."""

    profile: Profile
    suite: Suite
    record: ProfileRecord
    cases: tuple[Case, ...]
    """The cases that it names, required and optional, in the order in which they were loaded."""
    waivers: WaiverFiles
    """The files that were read, with only the permitted waivers."""


class Profiles(Protocol):
    """The tool ``attest``, where the functions describe themselves."""

    def cases_of(
        self, profile: Profile, suite: Suite, waivers: WaiverFiles | None = None
    ) -> Resolved: ...
    def changed_files(self) -> Mapping[str, str]: ...
    def levels_of(self, record: ProfileRecord) -> Mapping[str, Mapping[str, Any]]: ...
    def load_profile(
        self,
        name: str,
        paths: Sequence[Path],
        backend_files: Sequence[Path],
        backends: Sequence[str] | None = (),
    ) -> Resolved: ...
    def outlook_of(self, resolved: Resolved, machine: Machine) -> Iterator[str]: ...
    def read_profile(self, name: str) -> Profile: ...
    def warnings_of(
        self, machine: Machine, names: Collection[str]
    ) -> Iterator[tuple[str, str]]: ...
    def with_profile(self, options: RunOptions, name: str) -> tuple[RunOptions, Profile]: ...


def profiles() -> Profiles:
    """Return the tool; raise ``UsageError`` where it was not installed."""
    attest: Profiles = hooks("attest")
    return attest
