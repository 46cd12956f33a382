"""``filecheck``: LLVM FileCheck directives on the generated code of a step, or on one stage of a
kernel that was compiled for a target.
"""

import contextlib
import functools
import itertools
import json
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from torch_conformance.matching.filecheck import (
    Change,
    CheckFile,
    ChecksError,
    Directive,
    EmptyText,
    changes,
    parse,
    passes,
    run,
)
from torch_conformance.matching.filecheck import Kind as Kinds
from torch_conformance.matching.generated_code import Code, code_of, commented_out, joined, whole
from torch_conformance.matching.time_limit import PatternTooSlow
from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.devices import ACCELERATORS, CPU
from torch_conformance.model.expectation import Mutant, Reading, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import STAGES_OF_VENDOR, WRAPPER
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.compiled_kernels import (
    code_of_stage,
    commented_out_stage,
)
from torch_conformance.vocabulary.expectations.expectation_base import BadExpectation, Kind
from torch_conformance.vocabulary.expectations.texts import check_specific_checks
from torch_conformance.vocabulary.forms import Form, WhenJudged
from torch_conformance.vocabulary.worker_session import Facts

ALL = "all"
"""A value of ``code``: all pieces."""

CHOICE = Form({"type": ["integer", "string"], "minimum": 0, "pattern": "^all$"})
"""The form of a choice: an index, or all."""

WHOLE = "whole"
"""A value of ``text``: with comments and boilerplate."""

COMMENTED_OUT = "all code commented out"

TRIVIAL = "the code of a trivial function"

IN_THE_REST = (
    "the directives match the whole text: the match of this one is in a comment or in "
    "boilerplate, which is not code"
    " (text: whole includes both)"
)


_INDEX = {
    WRAPPER: -1,
    **{stage: index for stages in STAGES_OF_VENDOR.values() for index, stage in enumerate(stages)},
}
"""The piece of code of each stage. The wrapper is the last."""


@functools.cache
def trivial_code() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the code of two trivial functions by device, or by vendor and stage, and by its form,
    two graphs by stage, and by module the functions that the compile of one calls
    (``tools/trivial_code.py``).
    """
    known: Mapping[str, Mapping[str, list[str]]] = json.loads(
        Path(__file__).with_name("trivial_code.json").read_text(encoding="utf-8")
    )
    return known


class _CodeOnly(str):
    """Text from which comments and boilerplate are already removed."""

    __slots__ = ()


@frozen
class FileCheck(Kind):
    r"""LLVM FileCheck directives on the code that the step generated.

    ``filecheck: "CHECK: .run("``
    ``filecheck: {code: 0, checks: "CHECK: conv\nCHECK-NOT: batch_norm\n"}``
    """

    kind = "filecheck"
    form = Form({"type": ["string", "object"]})
    patterns = ((), ("checks",))
    instead = "name what only the code of this function has"
    judges_code = True
    is_offline = True
    measure = staticmethod(lambda arguments, value: {"unknown": never_written(arguments["words"])})
    needs_result = False
    checks: Annotated[CheckFile, Form({"type": "string"})]
    r"""The directives, one a line. For example ``"CHECK: conv\nCHECK-NOT: batch_norm\n"``."""
    code: Annotated[int | str, CHOICE, Form({"title": "choice of code"})] | None = None
    """Which piece of generated code: its index, or all.

    The only one when absent. For example ``all``, ``0``.
    """
    text: Annotated[Literal["code", "whole"], Form({"title": "text"})] = "code"
    """code: without comments, docstrings, imports and the lines that every generated file has.
    whole: with them. code when absent. For example ``whole``."""
    stage: (
        Annotated[
            Literal["ttir", "ttgir", "llir", "amdgcn", "ptx", "wrapper"], Form({"title": "stage"})
        ]
        | None
    ) = None
    """Which text of a kernel that is compiled for a target; comments are not part of it. It does
    not apply to targets whose compiler makes no such text. Of code that Inductor generates, the
    texts of all kernels; wrapper is the Python that it wrote. For example ``amdgcn``."""
    when: WhenJudged = None
    """Where the expectation applies; everywhere when absent."""

    @classmethod
    def read(cls, body: Json) -> "FileCheck":
        """Read the directives; raise ``BadExpectation`` for lines that FileCheck would ignore."""
        options: Mapping[str, Any] = {"checks": body} if isinstance(body, str) else body
        path = () if isinstance(body, str) else ("checks",)
        try:
            checks = parse(options["checks"])
        except ChecksError as error:
            raise BadExpectation(
                error.message, error.hint, *path, line=error.line, column=error.column
            ) from error
        check_specific_checks(checks, *path)
        if "stage" in options and "code" in options:
            raise BadExpectation(
                "stage together with code", "a stage is one text: remove code", "code"
            )
        return cls(**{**options, "checks": checks})

    def measurement(self) -> Facts | None:
        """The worker says which of the forbidden words nothing emits.

        Instructions are words of compilers that it cannot read.
        """
        return (
            {"words": self.forbidden} if self.forbidden and self.stage in (None, WRAPPER) else None
        )

    @property
    def forbidden(self) -> list[Json]:
        """The words that must not be there."""
        return [word for directive in self.checks for word in _forbidden_words(directive)]

    def judge(self, facts: Reading) -> list[Verdict]:
        """Match the directives against the selected code."""
        if not self.applies(facts.surroundings):
            return [Verdict.not_applicable()]
        try:
            chosen = self._choose(facts.code, self.text)
            if isinstance(chosen, Verdict):
                return [chosen]
            outcome = run(self.checks, chosen.text, numbers=chosen.numbers)
        except PatternTooSlow:
            return [Verdict.error("an answer within the time limit", "pattern too slow")]
        except EmptyText:
            is_blank = self.text == WHOLE or not any(piece.strip() for piece in facts.code)
            why = (
                "the generated code is blank"
                if is_blank
                else "the generated code has only comments and boilerplate"
            )
            return [Verdict.error("generated code", why)]
        expected = (
            "every directive matches"
            if outcome.passed
            else f"line {outcome.line}: {outcome.directive}"
        )
        observed = outcome.reason or "matched"
        if not outcome.passed and self.text != WHOLE:
            chosen = self._choose(facts.code, WHOLE)
            with contextlib.suppress(PatternTooSlow):  # the verdict does not depend on it
                if isinstance(chosen, Code) and passes(self.checks, chosen.text):
                    observed = f"{observed}: {IN_THE_REST}"
        detail = [
            outcome.excerpt,
            f"possible match: {outcome.possible}" if outcome.possible else "",
        ]
        return [
            Verdict.of(outcome.passed, expected, observed, detail="\n".join(filter(None, detail)))
        ]

    def leaf_of(self, judgement: Verdict) -> str:
        """Return the line of the directives that did not match."""
        return judgement.expected.partition(":")[0]

    def applies(self, surroundings: Surroundings) -> bool:
        """Where ``when`` holds, and where the compiler of the target makes such a text."""
        if self.stage is not None and self.stage not in (
            WRAPPER,
            *STAGES_OF_VENDOR.get(surroundings.vendor or "", ()),
        ):
            return False
        return holds(self.when, surroundings)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each directive on its own: its match removed, or its forbidden line inserted; then all
        code commented out.
        """
        chosen = self._choose(facts.code, self.text)
        if isinstance(chosen, Verdict):
            return
        for change in changes(self.checks, chosen.text):
            where = f"line {change.directive.line}: {change.directive}"
            if change.text is None:
                yield Mutant(change.kind.value, None, where=where, why_not=change.why_not)
            else:
                # an inserted line may not be code; the rest of a line after a removal must not be
                # parsed again
                text = change.text if change.kind is Change.FORBIDDEN else _CodeOnly(change.text)
                yield Mutant(
                    change.kind.value,
                    replace(facts, code=self._with(facts.code, text)),
                    where=where,
                )
        for directive in self.checks:
            never = [
                word
                for word in _forbidden_words(directive)
                if word not in chosen.text
                and (
                    word in (facts.measured or {}).get("unknown", ())
                    or (
                        facts.surroundings.device == CPU
                        and not _OF_GPUS.isdisjoint(word.split("_"))
                    )
                )
            ]
            if never:
                where = (
                    f"line {directive.line}: {directive}: neither torch nor the spec nor a loaded "
                    f"package has the word {never[0]} for {facts.surroundings.device}"
                )
                yield Mutant("any code", facts, where=where)
        is_python = self.stage in (None, WRAPPER)
        code = [
            commented_out(piece) if is_python else commented_out_stage(piece, str(self.stage))
            for piece in facts.code
        ]
        yield Mutant(COMMENTED_OUT, replace(facts, code=tuple(code)))
        here = facts.surroundings
        kind = here.device if is_python else f"{here.vendor} {self.stage}"
        yield from self.trivial_mutants(
            kind, lambda text: replace(facts, code=self._with(facts.code, text))
        )

    def trivial_mutants(self, kind: str, changed: Callable[[str], Reading]) -> Iterator[Mutant]:
        """Yield the code of a trivial function of each form, of two such one for which the
        directives fail if there is one.

        ``kind`` is that of the code or of a graph. Directives that forbid something claim that,
        whatever else they match.
        """
        if any(directive.kind is Kinds.NOT for directive in self.checks):
            return
        for form, texts in trivial_code().get(kind, {}).items():
            chosen = next(
                (
                    text
                    for text in texts
                    if not passes(self.checks, self._read(text, self.text).text)
                ),
                texts[0],
            )
            yield Mutant(TRIVIAL, changed(chosen), where=f"the form {form}")

    def _with(self, code: tuple[str, ...], text: str) -> tuple[str, ...]:
        if self.code == ALL:
            return (text,)
        index = (
            _INDEX[self.stage] % len(code)
            if self.stage is not None
            else self.code
            if isinstance(self.code, int)
            else 0
        )
        return (*code[:index], text, *code[index + 1 :])

    def text_of(self, code: tuple[str, ...]) -> str | None:
        """Return the text that the directives are matched against; None where there is none, or
        where reading it takes too long.
        """
        try:
            chosen = self._choose(code, self.text)
        except PatternTooSlow:
            return None
        return chosen.text if isinstance(chosen, Code) and chosen.text.strip() else None

    def _choose(self, code: tuple[str, ...], text: str) -> Code | Verdict:
        """Return the selected code; raise ``PatternTooSlow`` if parsing takes too long."""
        if not code:
            return Verdict.error("generated code", "the step generated no code")
        if self.stage is not None:
            if _INDEX[self.stage] >= len(code):
                return Verdict.error(f"the stage {self.stage}", f"{len(code)} texts")
            return self._read(code[_INDEX[self.stage]], text)
        if self.code == ALL:
            return joined([self._read(piece, text) for piece in code])
        if self.code is None and len(code) > 1:
            return Verdict.error(
                "one piece, or code: INDEX, or code: all", f"{len(code)} pieces of code"
            )
        index = self.code or 0
        if not isinstance(index, int) or index >= len(code):
            return Verdict.error(f"a piece with the index {index}", f"{len(code)} pieces of code")
        return self._read(code[index], text)

    def _read(self, piece: str, text: str) -> Code:
        if text == WHOLE or isinstance(piece, _CodeOnly):
            return whole(piece)
        return code_of(piece) if self.stage in (None, WRAPPER) else code_of_stage(piece, self.stage)


def _forbidden_words(directive: Directive) -> list[str]:
    """Return the words of the fixed text of a ``CHECK-NOT`` that say something; none of other
    directives.
    """
    parts = directive.parts if directive.kind is Kinds.NOT else ()
    return [
        word
        for part in parts
        for word in re.findall(r"[A-Za-z_]+", part.text)
        if len(word.strip("_")) >= 3 or word in _OF_GPUS
    ]


_OF_GPUS = {*ACCELERATORS, "triton", "tl", "XBLOCK", "hip", "rocm"}
"""Parts of words that no code for the CPU has."""


# -- words that no generated code can have: a CHECK-NOT of one holds whatever the code is ----------


def never_written(words: Sequence[str]) -> list[str]:
    """Return the words that are no part of torch's code generators, of the spec's Python, of an
    operator's name, or of a loaded package.

    Names of kernels are composed, so that a word with underscores is known where the name of an
    operator has each of its parts.
    """
    rest = set(words)
    for text in _texts() if rest else ():
        rest = {word for word in rest if word not in text}
        if not rest:
            break
    operators = _operators()
    return [
        word
        for word in words
        if word in rest
        and ("_" not in word or not all(part in operators for part in word.split("_")))
    ]


def _operators() -> str:
    """Return the names of torch's operators, and the code of trivial functions, which has what else
    the names of kernels are made of.
    """
    declared = (
        _packages() / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    ).read_text("utf-8")
    return "\n".join(
        [
            *re.findall(r"^- func: (\w+)", declared, re.MULTILINE),
            *itertools.chain(
                *(text for forms in trivial_code().values() for text in forms.values())
            ),
        ]
    )


def _packages() -> Path:
    return Path(str(sys.modules["torch"].__file__)).parents[1]


def _texts() -> Iterator[str]:
    """Yield the texts that are read before most words are found first."""
    for known in list(linecache.cache.values()):
        yield "".join(known[2]) if len(known) > 2 else ""
    yield _operators()
    generators = _packages() / "torch" / "_inductor"
    suffixes = (".py", ".jinja", ".h", ".cpp")
    files = {
        path: None
        for path in (generators / "codegen", generators)
        for path in path.rglob("*")
        if path.suffix in suffixes
    }
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            isinstance(file, str)
            and file.endswith(".py")
            and name.partition(".")[0] not in ("torch_conformance", "__main__", "__mp_main__")
        ):
            files.setdefault(Path(file))
    for path in files:
        try:
            yield path.read_text("utf-8", "replace")
        except OSError:
            continue
