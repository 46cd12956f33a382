"""The cases of specs as they are listed. What specs without a problem gave is cached; every other spec is read and checked each time."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runner.core.collector import collector_paused
from runner.core.diagnostics import Diagnostic, UsageError
from runner.core.listed import ListedCase, duplicate_ids, listed
from runner.core.protocol import Json
from runner.language.backends import Backends, read_backends
from runner.language.read import outside
from runner.language.read.files import DefaultsReader, SpecPath, discover
from runner.language.read.listed_rows import Kinds, as_rows, from_rows
from runner.language.spec_keys import SpecKeys, working_folder
from runner.system import spec_cache
from runner.system.installed_torch import installed_torch
from runner.system.spec_cache import SpecCache

if TYPE_CHECKING:
    from runner.core.case import Case
    from runner.language.load import Shared

LEAST = 64
"""With fewer specs the cache is not used: they are read in less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The cases of the readable specs, and the problems of all."""

    cases: tuple[ListedCase, ...]
    backends: Backends
    problems: tuple[Diagnostic, ...]
    notes: tuple[str, ...] = ()
    """What the user should know of the cache."""
    cached: int = 0
    """How many specs were taken from the cache."""


def listing(paths: Sequence[Path], backend_files: Sequence[Path] = (), *, use_cache: bool = True) -> Listing:
    """Read, validate and expand as ``load.inspect`` does, and return what is listed of it."""
    problems: list[Diagnostic] = []
    with collector_paused():
        specs = discover(paths, problems)
        before = len(problems)
        backends = read_backends(backend_files, problems)
        # what a spec means beside invalid backends depends on more than the files
        is_sound = len(problems) == before
        notes: list[str] = []
        cache = _opened(notes) if use_cache and is_sound and len(specs) >= LEAST else None
        known = _Known.read(cache, paths, backend_files, backends) if cache is not None else None
        found = _Reading(backends, known).cases(specs, problems)
        problems.extend(duplicate_ids(found))
        if known is not None:
            known.write()
    return Listing(
        cases=tuple(found),
        backends=backends,
        problems=tuple(problems),
        notes=tuple(notes),
        cached=0 if known is None else len(known.used),
    )


def _opened(notes: list[str]) -> SpecCache | None:
    try:
        return spec_cache.opened()
    except UsageError as error:
        notes.append(f"the cache of specs is not used: {error}")
        return None


@dataclass(kw_only=True)
class _Known:
    """What the cache has of the specs of this command, and what it gets."""

    cache: SpecCache
    name: str
    """Of the file in the cache."""
    keys: SpecKeys
    kinds: Kinds
    asked: dict[tuple[str, str], int]
    """The questions about files outside of the specs, with the numbers by which entries name them."""
    answers: dict[tuple[str, str], Json]
    entries: Mapping[str, Json]
    """What was cached and still holds, by key."""
    used: dict[str, Json] = field(default_factory=dict)
    made: dict[str, Json] = field(default_factory=dict)
    is_sound: bool = True
    """Whether neither the defaults nor the backends have a problem."""

    @classmethod
    def read(cls, cache: SpecCache, paths: Sequence[Path], backend_files: Sequence[Path], backends: Backends) -> "_Known":
        """Read the file of this command. Its questions are asked again; what depends on another answer is dropped."""
        documents = list({id(one.document): one.document for one in backends.by_name.values()}.values())
        keys = SpecKeys(documents, installed_torch())
        named = b"\0".join(os.fsencode(os.path.abspath(path)) for path in [*paths, Path("/"), *backend_files])
        name = hashlib.blake2b(working_folder() + b"\0" + named, digest_size=16).hexdigest()
        body = cache.read(name)
        content: Json = None if body is None else json.loads(body)
        if content is None or content["state"] != keys.state.hex():
            return cls(cache=cache, name=name, keys=keys, kinds=Kinds(), asked={}, answers={}, entries={})
        asked = {(question, text): number for number, (question, text, _) in enumerate(content["asked"])}
        answers = {(question, text): answer for question, text, answer in content["asked"]}
        changed = {number for question, number in asked.items() if outside.ask(*question) != answers[question]}
        entries = content["specs"]
        if changed:
            entries = {key: entry for key, entry in entries.items() if changed.isdisjoint(entry["asked"])}
        return cls(cache=cache, name=name, keys=keys, kinds=Kinds(content["kinds"]), asked=asked, answers=answers, entries=entries)

    def keep(self, key: str, cases: Sequence[ListedCase], questions: outside.Questions) -> None:
        """Remember what a spec without a problem gave."""
        rows = as_rows(cases, self.kinds)
        if rows is not None:
            self.answers |= questions
            self.made[key] = {**rows, "asked": [self.asked.setdefault(question, len(self.asked)) for question in questions]}

    def write(self) -> None:
        """Write the file if anything changed."""
        if not self.is_sound or (not self.made and len(self.used) == len(self.entries)):
            return
        entries = self.used | self.made
        questions = _numbered([entry["asked"] for entry in entries.values()])
        kinds = _numbered([entry["kinds"] for entry in entries.values()])
        asked = [*self.asked]
        content = {
            "state": self.keys.state.hex(),
            "asked": [[*asked[number], self.answers[asked[number]]] for number in questions],
            "kinds": [self.kinds.written[number] for number in kinds],
            "specs": {
                key: {**entry, "asked": [questions[one] for one in entry["asked"]], "kinds": [kinds[one] for one in entry["kinds"]]}
                for key, entry in entries.items()
            },
        }
        self.cache.write(self.name, json.dumps(content, separators=(",", ":")).encode("ascii"))


def _numbered(lists: Iterable[Sequence[int]]) -> dict[int, int]:
    """Return a new number for each one that entries have: those that none has are left out of the file."""
    found: dict[int, int] = {}
    for numbers in lists:
        for number in numbers:
            found.setdefault(number, len(found))
    return found


class _Reading:
    """Reads the specs of one command."""

    def __init__(self, backends: Backends, known: _Known | None) -> None:
        self._backends = backends
        self._known = known
        self._shared: Shared | None = None
        self._defaults = DefaultsReader()
        self._problems: list[Diagnostic] = []
        """Those that are of no spec alone."""

    def cases(self, specs: Sequence[SpecPath], problems: list[Diagnostic]) -> list[ListedCase]:
        """Return the cases of the specs, and add the problems."""
        if self._known is None or not self._known.entries:
            self._prepare()  # entries that hold show that the backends have no problem
        found = [case for spec in specs for case in self._of(spec, problems)]
        own = [*self._problems, *self._defaults.problems]
        problems.extend(own)
        if self._known is not None:
            self._known.is_sound = not own
        return found

    def _prepare(self) -> "Shared":
        if self._shared is None:
            from runner.language.load import shared_of  # with all checks: not needed while nothing changed

            self._shared = shared_of(self._backends, None, self._problems)
        return self._shared

    def _of(self, spec: SpecPath, problems: list[Diagnostic]) -> Iterator[ListedCase]:
        known = self._known
        keyed = known.keys.of(spec) if known is not None else None
        if known is None or keyed is None:
            return iter(self._read(spec, problems, None))
        key, content = keyed
        if key in known.entries:
            known.used[key] = known.entries[key]
            return from_rows(known.entries[key], known.kinds)
        before = len(problems)
        with outside.recorded() as questions:
            found = self._read(spec, problems, content)
        if len(problems) == before:
            known.keep(key, found, questions)
        return iter(found)

    def _read(self, spec: SpecPath, problems: list[Diagnostic], content: bytes | None) -> list[ListedCase]:
        from runner.language.load import check_part, read_part
        from runner.vocabulary.steps import SAMPLES

        part = read_part(spec, self._defaults, problems, content)
        if part is None:
            return []
        cases: list[Case] = []
        problems.extend(check_part(part, cases, self._prepare()))
        return [listed(case, of_source=[step.kind for step in case.steps] == [SAMPLES]) for case in cases]
