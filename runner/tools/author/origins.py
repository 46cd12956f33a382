"""Where the values of a case come from, in words: its spec's defaults, its backend, a point of the matrix. Pure."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath

from runner.language.read import templates
from runner.language.read.document import Document
from runner.language.read.spec_files import DEFAULTS
from runner.model.case import Case
from runner.model.diagnostics import Position
from runner.plan.selection import is_optional
from runner.tools.author.case_document import SECTIONS, Decision, expectations_of


class Origins:
    """The origins of one case's values, by their path in ``document_of``; each is empty for what the spec says itself."""

    def __init__(self, case: Case, documents: Sequence[Document], decision: Decision) -> None:
        """``documents`` are those of the suite: the defaults of each spec stand before it, outermost first."""
        at = next(index for index, document in enumerate(documents) if document.file == case.spec)
        self._case, self._decision = case, decision
        self._spec = documents[at]
        self._defaults = list(takewhile(lambda document: PurePath(document.file).name == DEFAULTS, reversed(documents[:at])))
        self._labels = dict(pair.partition("=")[::2] for pair in case.id.rpartition("[")[2].rstrip("]").split(","))
        self._names: dict[Position, set[str]] = {}
        for path, text in templates.occurrences(self._spec.data):
            names = templates.parse(text).names
            for end in range(1, len(path) + 1):
                for key in (True, False):
                    self._names.setdefault(self._spec.position(path[:end], key=key), set()).update(names)

    def __call__(self, *path: str | int) -> str:
        """Return the origin of the value at a path."""
        match path:
            case ("steps", int(number), *rest):
                step = self._decision.steps_of(self._case)[number]
                if rest:
                    return self._at([expected for expected, _ in expectations_of(step, self._decision)][int(rest[1])].position)
                return ", ".join(filter(None, (self._at(step.position), "with run --bench only" if is_optional(step) else "")))
            case ("torch", "seed") if "seed" not in self._case.options.get("torch", {}):
                return "from the case's id"
            case (section, str(name)) if section in (*SECTIONS, "compile"):
                option = self._case.options[str(section)][name]
                if option.layer == "spec":
                    return self._at(option.position)
                return f"from {option.position.file}" if option.layer == "defaults" else option.layer
            case ("requires", int(number)):
                position = list({str(need): need for need in self._case.requires}.values())[number].position
                return self._at(position) if position.file == self._case.spec else f"backend {self._case.backend}"
            case ("tags",):
                own = set(self._spec.data.get("tags", []))
                inherited = [(part.file, [tag for tag in part.data.get("tags", []) if tag not in own]) for part in self._defaults]
                return ", ".join(f"{' '.join(tags)} from {file}" for file, tags in inherited if tags)
            case ("prelude",):
                files = [document.file for document in reversed(self._defaults) if "prelude" in document.data]
                return f"from {', '.join([*files, *(['the spec'] if 'prelude' in self._spec.data else [])])}" if files else ""
            case ("context" | "isolation" as key,) if key not in self._spec.data:
                return next((f"from {document.file}" for document in self._defaults if key in document.data), "")
            case ("source",):
                return f"a case for each operator; this one is op={self._case.params['op']}"
            case ("backends" | "exclude" | "matrix" | "targets" | "entry" | "services" | "exclusive" | "on_request", *_):
                return ""
        return self._at(self._spec.position(path, key=True))

    def _at(self, position: Position) -> str:
        """Return the origin of what stands at a position of the spec: the templates in it."""
        names = self._names.get(position, set())
        points = [f"{name}={self._labels.get(name, '')}" for name in self._case.params if name in names]
        words = [f"matrix: {', '.join(points)}"] if points else []
        words += [f"backend {self._case.backend}"] if names & {"backend", "device"} else []
        return ", ".join([*words, *(["known on the machine that runs it"] if templates.DEFERRED_NAME in names else [])])
