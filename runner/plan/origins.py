"""Where the values of a case come from, in words: its spec's defaults, its backend, a point of the matrix. Pure."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePath

from runner.core.case import Case, Option
from runner.core.diagnostics import Position
from runner.language.read import substitution, templates
from runner.language.read.document import Document
from runner.language.read.files import DEFAULTS


class Origins:
    """The origins of one case's values; each is empty for what the spec says itself."""

    def __init__(self, case: Case, documents: Sequence[Document]) -> None:
        """``documents`` are those of the suite: the defaults of each spec stand before it, outermost first."""
        at = next(index for index, document in enumerate(documents) if document.file == case.spec)
        self._case = case
        self._spec = documents[at]
        self._defaults = list(takewhile(lambda one: PurePath(one.file).name == DEFAULTS, reversed(documents[:at])))
        self._labels = dict(pair.partition("=")[::2] for pair in case.id.rpartition("[")[2].rstrip("]").split(","))
        self._names: dict[Position, set[str]] = {}
        for path, text in substitution.occurrences(self._spec.data):
            names = templates.parse(text).names
            for end in range(1, len(path) + 1):
                for key in (True, False):
                    self._names.setdefault(self._spec.position(path[:end], key=key), set()).update(names)

    def option(self, option: Option) -> str:
        """Return the origin of an option."""
        if option.layer == "spec":
            return self.at(option.position)
        return f"from {option.position.file}" if option.layer == "defaults" else option.layer

    def of(self, *path: str | int) -> str:
        """Return the origin of the value at a path of the spec: the templates in it."""
        return self.at(self._spec.position(path, key=True))

    def at(self, position: Position) -> str:
        """Return the origin of what stands at a position of the spec."""
        return ", ".join(self._words(self._names.get(position, set())))

    def inherited(self, *path: str) -> str:
        """Return the innermost file of defaults that has a key, where the spec does not have it."""
        if path[0] in self._spec.data:
            return self.of(*path)
        return next((f"from {document.file}" for document in self._defaults if path[0] in document.data), "")

    def tags(self) -> str:
        """Return which tags come from which file of defaults."""
        own = set(self._spec.data.get("tags", []))
        found = [(document.file, [tag for tag in document.data.get("tags", []) if tag not in own]) for document in self._defaults]
        return ", ".join(f"{' '.join(tags)} from {file}" for file, tags in found if tags)

    def prelude(self) -> str:
        """Return the files that the parts of the prelude come from."""
        files = [document.file for document in reversed(self._defaults) if "prelude" in document.data]
        own = ["the spec"] if files and "prelude" in self._spec.data else []
        return f"from {', '.join([*files, *own])}" if files else ""

    def _words(self, names: set[str]) -> Iterator[str]:
        points = [f"{name}={self._labels.get(name, '')}" for name in self._case.params if name in names]
        if points:
            yield f"matrix: {', '.join(points)}"
        if names & {"backend", "device"}:
            yield f"backend {self._case.backend}"
        if templates.DEFERRED_NAME in names:
            yield "known on the machine that runs it"
