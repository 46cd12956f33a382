"""``run --profile``: which options go with it, the files that it names, and its cases."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runner.core.conditions import VersionRange
from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.options import RunOptions
from runner.language.load import Suite
from runner.language.profiles import Profile, read_profile, shipped_waivers
from runner.language.waivers import WaiverFiles
from runner.plan.case_ledger import compare, ledgers_of, read_ledger
from runner.plan.profile_cases import Resolved, resolve
from runner.system.installed_torch import installed_torch, release

_SELECTS = "the profile selects its cases"
_DECIDES = "the profile says what must be executed"
_AGAIN = "a case of a profile runs once"

REFUSED: Mapping[str, tuple[object, str]] = {
    "paths": ((), _SELECTS),
    "backend": ((), _SELECTS),
    "select": ((), _SELECTS),
    "tag": ((), _SELECTS),
    "last_failed": (False, _SELECTS),
    "failed_in": (None, _SELECTS),
    "require": ((), _DECIDES),
    "min_executed": (1, _DECIDES),
    "retries": (0, _AGAIN),
    "flaky": ("fail", _AGAIN),
}
"""Options of ``run`` that do not go with ``--profile``: the default of each, and the reason."""


def with_profile(options: RunOptions) -> tuple[RunOptions, Profile | None]:
    """Return the options with the files of the profile, and the profile; raise ``UsageError`` for options that do not go with it."""
    if options.profile is None:
        return options, None
    if problem := next(_refusals(options), ""):
        raise UsageError(f"--profile {one_line(options.profile)}: {problem}")
    profile = read_profile(options.profile)
    check_torch(profile)
    if other := [path for path in options.waivers if not _permits(profile, path)]:
        raise UsageError(
            f"--profile {profile.name}: it does not permit the waivers of {shown_path(other[0])} (write another profile with a permission: "
            f"waivers: [{{file: {other[0].name}}}])"
        )
    files = _once([*profile.backends, *options.backends])
    return replace(options, paths=profile.specs, backends=files, waivers=_once([*profile.waivers, *options.waivers])), profile


def _refusals(options: RunOptions) -> Iterator[str]:
    for name, (default, reason) in REFUSED.items():
        if getattr(options, name) != default:
            word = "PATH" if name == "paths" else f"--{name.replace('_', '-')}"
            yield f"{word} does not go with it: {reason} (remove {word})"


def check_torch(profile: Profile) -> None:
    """Raise ``UsageError`` if the installed torch is not one that the profile is for."""
    installed = installed_torch()
    if installed is not None and not VersionRange.parse(profile.torch).holds(release(installed.version)):
        raise UsageError(
            f"--profile {profile.name}: {profile.name} {profile.version} is for torch {profile.torch}, and torch {installed.version} is "
            "installed (install one of these versions, or name another profile)"
        )


def _permits(profile: Profile, path: Path) -> bool:
    return os.path.realpath(path) in {os.path.realpath(one) for one in (*profile.waivers, *_shipped(profile))}


def _shipped(profile: Profile) -> Iterator[Path]:
    shipped = shipped_waivers()
    yield from (shipped for one in profile.permissions if os.path.realpath(one.file) == os.path.realpath(shipped))


def _once(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths, each file once."""
    return tuple({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def cases_of(profile: Profile, suite: Suite, waivers: WaiverFiles) -> Resolved:
    """Return the cases of a profile, and those that a ledger lists and the specs have lost; raise ``InvalidSpecs``."""
    ledgers = map(read_ledger, ledgers_of(profile.specs))
    lost = [case_id for ledger in ledgers for case_id in compare(ledger, suite.cases).gone]
    return resolve(profile, suite.cases, suite.backends, waivers, lost)
