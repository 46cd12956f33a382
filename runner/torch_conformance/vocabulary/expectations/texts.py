"""Texts: ``text`` of a value, ``log`` of torch, ``exit`` of a child, ``raises``, and patterns that
any text matches, which are refused.
"""

import builtins
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from torch_conformance.matching.filecheck import CheckFile
from torch_conformance.matching.filecheck import Kind as Directives
from torch_conformance.matching.patterns import (
    ANYTHING,
    are_general,
    check_pattern,
    finds,
    is_general_pattern,
    search,
)
from torch_conformance.matching.patterns import is_general as is_general_text
from torch_conformance.matching.time_limit import PatternTooSlow
from torch_conformance.model.case_facts import Cause, StepFacts
from torch_conformance.model.conditions import choose
from torch_conformance.model.expectation import About, Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.expectation_base import (
    EAGER,
    OUTPUT,
    BadExpectation,
    Conditional,
    ConditionalOnCode,
    count_mutants,
    counts_in,
    parse_count,
    text_of,
)
from torch_conformance.vocabulary.forms import (
    Count,
    Exception_,
    Form,
    Integer,
    Pattern,
    Texts,
    ValueName,
    one_of_keys,
    some_of,
)
from torch_conformance.vocabulary.worker_session import Facts, Lookup

MOST = 1_000_000
"""The maximum length of a text from the worker, in characters, counted from the end."""

_CUT = "the text is longer than what is kept of it, so its beginning is not known"


def parts_of(body: str | list[str] | None) -> tuple[str, ...]:
    """Return the expected parts."""
    return () if body is None else (body,) if isinstance(body, str) else tuple(body)


def check_searched(
    pattern: str | None, *path: str, hint: str = "match at least one character"
) -> None:
    """Check a pattern, if there is one; raise ``BadExpectation`` for no pattern, and with a hint
    for one that matches every text.
    """
    if pattern is None:
        return
    if (reason := check_pattern(pattern)) is not None:
        raise BadExpectation(
            f"the pattern is not a regular expression: {reason}",
            "escape ( ) [ ] { } . * + ? with \\",
            *path,
        )
    if search(pattern, "") is not None:
        raise BadExpectation(
            "the pattern matches an empty text, so it matches every text", hint, *path
        )


def judge_text(
    text: str,
    contains: Texts | None,
    pattern: str | None,
    *,
    what: str,
    lacks: tuple[str, ...] = (),
) -> Verdict:
    """Judge a text.

    The judgement shows the first part that is missing, or that is there although it must not be.
    """
    parts = parts_of(contains)
    for part in lacks:
        if part in text:
            at = text.index(part)
            return Verdict.failed(
                f"{what} without {part!r}", _excerpt(text[max(at - 60, 0) :]), detail=text[-4000:]
            )
    for part in parts:
        if part not in text:
            return Verdict.failed(f"{what} with {part!r}", _excerpt(text), detail=text[-4000:])
    expected = f"{what} with " + " and ".join(
        [*map(repr, parts), *([f"a match of /{pattern}/"] if pattern else [])]
    )
    expected += "".join(f", without {part!r}" for part in lacks)
    if lacks and _may_be_cut(text):
        return Verdict.error(expected, _CUT)
    try:
        matches = pattern is None or search(pattern, text) is not None
    except PatternTooSlow:
        return Verdict.error(expected, "pattern too slow")
    return Verdict.of(matches, expected, _excerpt(text), detail="" if matches else text[-4000:])


def text_mutants(
    text: str,
    contains: Texts | None,
    pattern: str | None,
    changed: Callable[[str], Reading],
    leaf: str = "",
) -> Iterator[Mutant]:
    """Yield the text without each part, and without the matches of the pattern.

    ``changed`` makes facts with a text.
    """
    for part in parts_of(contains):
        yield Mutant("its part removed", changed(text.replace(part, "")), leaf, repr(part))
    if pattern is None:
        return
    # the text around a removed match may match again
    for _ in range(100):
        match = search(pattern, text)
        if match is None:
            yield Mutant("its match removed", changed(text), leaf, f"/{pattern}/")
            return
        text = text[: match.start()] + text[match.end() :]
    why_not = "more than 100 matches"
    yield Mutant("its match removed", None, leaf, f"/{pattern}/", why_not)


def _may_be_cut(text: str) -> bool:
    """Whether a text is as long as what is kept: counted in characters or bytes, of which a first
    one may be half.
    """
    return len(text.encode("utf-8", "surrogatepass")) > MOST - 8


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return (
        f"{len(text)} characters: {line[:160]}{'...' if len(line) > 160 else ''}"
        if text
        else "an empty text"
    )


# -- what is in almost every text ------------------------------------------------------------------

_NARROWER = "name a word that only the expected text has"


def check_specific(body: Json, key: str = "contains") -> None:
    """Check that the parts at a key, and the pattern, are in no text by chance; raise
    ``BadExpectation``.
    """
    for place, part in _placed(body, key):
        if is_general_text(part):
            hint = (
                "name more of what is expected: at least two letters or digits next to each other"
            )
            raise BadExpectation(
                f"almost every text contains {part!r}: this cannot fail", hint, *place
            )
    pattern = body.get("matches")
    if pattern is not None and is_general_pattern(pattern):
        raise BadExpectation(
            f"almost every text matches /{pattern}/: this cannot fail", _NARROWER, "matches"
        )


def check_specific_checks(checks: CheckFile, *path: str) -> None:
    """Check that directives do not pass on any text; raise ``BadExpectation``."""
    if are_general(checks):
        raise BadExpectation(
            "the directives pass on almost every text: they cannot fail", _NARROWER, *path
        )


def _placed(body: Json, key: str) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the parts at a key, each with its path."""
    parts = body.get(key)
    return [
        ((key, index) if isinstance(parts, list) else (key,), part)
        for index, part in enumerate(parts_of(parts))
    ]


EVERY_FRAME = """\
LAMBDA_GUARD: torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None
GLOBAL_STATE: ___check_global_state() against {"allow_bf16_reduce":0,"allow_fp16_reduce":0,"allow_tf32":false,"autocast_state":\
{"cached_enabled":true,"dtype":[15,5,5,15,5,5,15,15,5,5],"enabled":[false,false,false,false,false,false,false,false,false,false]},\
"default_dtype":6,"deterministic_algorithms":false,"deterministic_algorithms_warn_only":false,"grad_mode":true,"num_threads":2,\
"torch_function":true,"torch_function_all_disabled":false}
TORCH_FUNCTION_MODE_STACK: ___check_torch_function_mode_stack()
DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None
ID_MATCH: ___check_obj_id(G['torch'], 139000000000001), type=<class 'module'>
ID_MATCH: ___check_obj_id(G['torch'].ones, 139000000000002), type=<class 'builtin_function_or_method'>
"""  # noqa: E501 - text that is read by its lines
"""The guards of a function without arguments, as torch 2.13 writes them: every frame has these."""

OF_TENSORS = """\
TENSOR_MATCH: check_tensor(L['voltage'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, \
device=None, requires_grad=False, size=[97, 89], stride=[89, 1])
DIMENSION_DYNAMIC_MARKING_GUARD: hasattr(L['voltage'], '_dynamo_dynamic_indices') == False
"""  # noqa: E501 - text that is read by its lines
"""Those of any function of a tensor."""

OTHER_FRAMES = """\
TYPE_MATCH: ___check_type_id(L['gadgets'], 139000000000003), type=<class 'dict'>
TYPE_MATCH: ___check_type_id(L['gadgets']['widget'], 139000000000004), type=<class 'int'>
LENGTH_CHECK: len(L['gadgets']) == 97
EQUALS_MATCH: L['gadgets']['widget'] == 1009
ID_MATCH: ___check_obj_id(G['gauge'], 139000000000005), type=<class 'function'>
DICT_CONTAINS: not ___dict_contains('forward', G['gauge'].__dict__)
"""
"""Guards of functions that a spec does not mean."""

_KINDS = tuple(line.partition(":")[0] for line in (OF_TENSORS + OTHER_FRAMES).splitlines())


def check_guards(body: Json, checks: CheckFile | None) -> None:
    """Refuse parts, patterns and directives of any guards, with ``BadExpectation``.

    A kind that not every frame has may be named without more.
    """
    hint = "name a guard by its kind and its source, as in TENSOR_MATCH: check_tensor(L['x']"

    def refuse(
        what: str,
        path: tuple[str | int, ...],
        is_in: Callable[[str], bool],
        *names: str,
        every: str = EVERY_FRAME + OF_TENSORS,
    ) -> None:
        if is_in(every):
            raise BadExpectation(
                f"{what} is in the guards of every function: this cannot fail", hint, *path
            )
        names_kind = any(
            re.search(rf"(?<!\w){kind}(?!\w)", name) for kind in _KINDS for name in names
        )
        if not names_kind and is_in(EVERY_FRAME + OF_TENSORS + OTHER_FRAMES):
            raise BadExpectation(f"{what} is in the guards of most functions", hint, *path)

    for place, part in _placed(body, "contains"):
        refuse(
            repr(part),
            place,
            functools.partial(lambda part, text: is_general_text(part) or part in text, part),
            part,
        )
    if (pattern := body.get("matches")) is not None:
        refuse(
            f"a match of /{pattern}/", ("matches",), lambda text: finds(pattern, [text]), pattern
        )
    if checks is not None:
        patterns = [
            directive.pattern for directive in checks if directive.kind is not Directives.NOT
        ]
        refuse(
            "what the directives match",
            ("checks",),
            lambda text: are_general(checks, [text]),
            *patterns,
            every=EVERY_FRAME + ("" if len(patterns) < len(checks) else OF_TENSORS),
        )


# -- text and log ----------------------------------------------------------------------------------

OF_WORDS = "name words that only the expected text has"


@frozen
class _OfText(ConditionalOnCode):
    """What is expected of a text."""

    form = some_of("contains", "matches")
    patterns = (("matches",),)
    instead = OF_WORDS
    contains: Texts | None = None
    """Parts of it, in any order."""
    count: Count = None
    """How often each part of contains is in it, without overlaps; at least once when absent."""
    matches: Pattern | None = None
    """A regular expression, searched in it. For example ``planted (crash|hang)``."""
    lacks: Texts | None = None
    """Parts of which none is in it.

    Needs contains or matches too: an empty text lacks everything.
    """

    @classmethod
    def check(cls, body: Json) -> None:
        """Check the pattern, reject ``contains`` and ``lacks`` that contradict each other, and
        check how often the parts must be in the text.
        """
        check_searched(body.get("matches"), "matches")
        for part in parts_of(body.get("lacks")):
            if any(part in contained for contained in parts_of(body.get("contains"))):
                raise BadExpectation(
                    f"no text contains what it must and lacks {part!r}",
                    "remove one of the two",
                    "lacks",
                )
        if "count" not in body:
            return
        if "contains" not in body:
            raise BadExpectation("count without contains", "add contains: TEXT", "count")
        for required in map(parse_count, counts_in(body["count"])):
            if required.most == 0:
                raise BadExpectation(
                    "a text that contains it has it more than 0 times", "write lacks: TEXT", "count"
                )
            if required.least == 1 and required.most is None:
                raise BadExpectation(
                    "{min: 1} is true for every text that contains it", "remove count", "count"
                )

    @property
    def what(self) -> str:
        """The text, in words."""
        raise NotImplementedError

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge the text; where all else holds, how often each part is in it.

        Occurrences do not overlap.
        """
        text, parts = facts.measured["text"], parts_of(self.contains)
        if text is None:
            return [Verdict.failed(f"{self.what} is a text", facts.measured["type"])]
        judged = judge_text(
            text, self.contains, self.matches, what=self.what, lacks=parts_of(self.lacks)
        )
        applies, value = choose(self.count, facts.surroundings)
        if self.count is None or not applies or judged.status is not Status.HELD:
            return [judged]
        required = parse_count(value)
        expected = f"{judged.expected}, as often as {required}"
        for part in parts:
            number = text.count(part)
            too_many = required.most is not None and number > required.most
            if _may_be_cut(text) and not too_many:
                return [Verdict.error(expected, _CUT)]
            if not required.holds(number):
                return [Verdict.failed(expected, f"{part!r} {number} times", detail=text[-4000:])]
        return [replace(judged, expected=expected)]

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """The text without the expected parts and matches, with parts as often as they must not be,
        and with what it must lack.
        """
        text, parts = facts.measured["text"], parts_of(self.contains)
        yield from text_mutants(
            text, self.contains, self.matches, lambda other: facts.with_measured(text=other)
        )
        if (parts or self.matches) and not self.lacks and self.count is None:
            yield Mutant("single characters", facts.with_measured(text=ANYTHING[0]))
        for part in parts if self.count is not None else ():

            def so_often(number: float, part: str = part) -> Reading:
                return facts.with_measured(
                    text="\n".join([text.replace(part, ""), *[part] * int(number)])
                )

            yield from count_mutants(
                self.count, text.count(part), facts, so_often, where=repr(part)
            )
        for part in parts_of(self.lacks):
            yield Mutant(
                "a lacked part added", facts.with_measured(text=text + part), where=repr(part)
            )


def measure_text(arguments: Facts, value: Lookup) -> Json:
    """Measure in the worker: the text, or null for a value of another type; and the type."""
    named_value = value(arguments["of"])
    return {
        "text": named_value[-MOST:] if isinstance(named_value, str) else None,
        "type": f"a {type(named_value).__name__}",
    }


@frozen
class Text(_OfText):
    """What a text value contains.

    ``text: {of: command, contains: ["nvcc ", "-Wx"]}``
    ``text: {of: printed, contains: GB/s, count: 1}``
    """

    measure = staticmethod(measure_text)
    about = About.ANYTHING
    of: ValueName = OUTPUT
    """The value; the step's result when absent."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the value."""
        return (self.of,)

    def measurement(self) -> Facts:
        """The worker sends the text of the value."""
        return {"of": self.of}

    @property
    def what(self) -> str:
        """The name of the value."""
        return self.of


STDERR = "<stderr>"
"""The name of the worker's standard error of the step; no value of a spec can have this name."""


_EVERY_LOG = """\
V0101 00:00:00.000000 1000 torch/_dynamo/convert_frame.py:1000] [0/0] torchdynamo start compiling f, stack (elided 5 frames):
I0101 00:00:00.000000 1000 torch/_dynamo/symbolic_convert.py:1000] [0/0] Step 1: torchdynamo start tracing f
I0101 00:00:00.000000 1000 torch/fx/experimental/symbolic_shapes.py:1000] [0/0] create_env
V0101 00:00:00.000000 1000 torch/_dynamo/output_graph.py:1000] [0/0] create_graph_input
I0101 00:00:00.000000 1000 torch/_dynamo/symbolic_convert.py:1000] [0/0] Step 1: torchdynamo done tracing f (RETURN_VALUE)
I0101 00:00:00.000000 1000 torch/_dynamo/output_graph.py:1000] [0/0] Step 2: calling compiler function
I0101 00:00:00.000000 1000 torch/_dynamo/output_graph.py:1000] [0/0] Step 2: done compiler function
I0101 00:00:00.000000 1000 torch/_inductor/compile_fx.py:1000] [0/0] Step 3: torchinductor compiling FORWARDS graph 0
I0101 00:00:00.000000 1000 torch/_inductor/compile_fx.py:1000] [0/0] Step 3: torchinductor done compiling FORWARDS graph 0
"""  # noqa: E501 - text that is read by its lines
"""What torch logs of any function, with TORCH_LOGS."""


@frozen
class Log(_OfText):
    """What the case and its children wrote to standard error during the step.

    ``log: {contains: planted crash}``
    ``log: {contains: hit config.recompile_limit, count: 1}``
    """

    about = About.ANYTHING
    measure = staticmethod(lambda arguments, value: {"text": value(STDERR)})
    needs_result = False

    @classmethod
    def check(cls, body: Json) -> None:
        """Check also that parts and pattern are in no text by chance, and not in what torch logs of
        any function.
        """
        _OfText.check(body)
        check_specific(body)
        for place, part in _placed(body, "contains"):
            if part in _EVERY_LOG:
                raise BadExpectation(
                    f"torch logs {part!r} of every function: this cannot fail", _NARROWER, *place
                )
        if (pattern := body.get("matches")) is not None and finds(pattern, [_EVERY_LOG]):
            raise BadExpectation(
                f"torch logs a match of /{pattern}/ of every function: this cannot fail",
                _NARROWER,
                "matches",
            )

    @property
    def what(self) -> str:
        """The stream."""
        return "standard error"


# -- exit ------------------------------------------------------------------------------------------

_OF_EVERY_FAILURE = (
    "process spawnprocess-1: traceback (most recent call last):\n"
    '  file "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n    '
    "self.run()\n"
    '  file "/usr/lib/python3.11/site-packages/torch/program.py", line 1, in <module>\n    '
    "raise error\nerror: exception failed "
    "no module named 'other' cannot import name 'other' name 'other' is not defined 'thing' "
    "object has no attribute 'other' "
    "invalid syntax no such file or directory usage: "
    + " ".join(
        f"{name}: "
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    )
).lower()
"""What programs print that fail for any reason."""


@frozen
class Exit(ConditionalOnCode):
    """How a spawned child ended.

    A non-zero exit needs a text that it printed, because an import error also ends a child.

    ``exit: {code: 0}``
    ``exit: {nonzero: true, stderr: planted in the choice}``
    ``exit: {code: 0, stdout: ready}``
    """

    about = About.ANYTHING
    form = one_of_keys("code", "nonzero")
    instead = OF_WORDS
    judges_exit = True
    code: Integer | None = None
    """The exit code; a negative one is a signal's."""
    nonzero: Annotated[bool, Form({"const": True})] = False
    """Any code but 0."""
    stderr: Texts | None = None
    """A text in its standard error."""
    stdout: Texts | None = None
    """A text in its standard output; of a program only."""

    @classmethod
    def check(cls, body: Json) -> None:
        """Check the texts.

        A non-zero code needs one, because a child that fails to start has a non-zero code too.
        """
        is_failure, printed = body.get("code") != 0, parts_of(body.get("stderr"))
        if is_failure and not body.keys() & {"stderr", "stdout"}:
            hint = (
                "add stderr: a text that only this failure prints; a child that fails to start "
                "has a non-zero code too"
            )
            raise BadExpectation("a non-zero exit code without 'stderr'", hint)
        check_specific(body, "stderr")
        if (
            is_failure
            and printed
            and "stdout" not in body
            and all(part.strip().lower() in _OF_EVERY_FAILURE for part in printed)
        ):
            hint = (
                "name words that only this failure prints: a child that cannot import something "
                "prints a traceback too"
            )
            raise BadExpectation(
                f"{' and '.join(map(repr, printed))} is what any failure prints: this cannot fail",
                hint,
                "stderr",
            )

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge the code, then the texts."""
        expected = "a non-zero exit code" if self.nonzero else f"exit code {self.code}"
        if facts.exit is None:
            return [Verdict.error(expected, "no child was spawned")]
        code = facts.exit.code
        if (code == 0) if self.nonzero else (code != self.code):
            printed = "\n".join(filter(None, (facts.exit.stdout, facts.exit.stderr)))
            return [Verdict.failed(expected, f"exit code {code}", detail=printed)]
        judged = []
        if self.stderr is not None:
            judged.append(
                judge_text(
                    _FRAMES.sub("", facts.exit.stderr),
                    self.stderr,
                    None,
                    what=f"{expected} and standard error",
                )
            )
        if self.stdout is not None:
            judgement = Verdict.error(
                "the standard output of a program",
                "the child shares the standard output of the case",
            )
            if facts.exit.stdout is not None:
                judgement = judge_text(
                    facts.exit.stdout,
                    self.stdout,
                    None,
                    what=f"{expected} and standard output",
                )
            judged.append(replace(judgement, leaf="stdout"))
        return judged or [Verdict.passed(expected, f"exit code {code}")]

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Another code, and each stream without its text; a misspelt name, which fails too."""
        if (child := facts.exit) is None:
            return
        another = replace(facts, exit=replace(child, code=0 if self.nonzero else child.code + 1))
        yield Mutant(
            "another code",
            another,
            leaf="stdout" if self.stderr is None and self.stdout is not None else "",
        )
        printed = _FRAMES.sub("", child.stderr).strip().rpartition("\n")[2].partition(":")[0]
        if f"builtins.{printed}" in _OF_A_TYPO and printed not in "".join(parts_of(self.stderr)):
            yield Mutant(f"any {printed}", facts)
        for stream, leaf in (("stderr", ""), ("stdout", "stdout")):
            if getattr(self, stream) is not None and (text := getattr(child, stream)) is not None:

                def changed(text: str, stream: str = stream) -> Reading:
                    texts: dict[str, Any] = {stream: text}
                    return replace(facts, exit=replace(child, **texts))

                yield from text_mutants(text, getattr(self, stream), None, changed, leaf)


_FRAMES = re.compile(r'^ +File ".*\n(?: {4}.*\n)*', re.MULTILINE)
"""The calls of a traceback, with their lines of Python, which are no words of the failure."""

# -- raises ----------------------------------------------------------------------------------------

_ANOTHER = "another.Error"
_ANOTHER_TEXT = (
    "RuntimeError: an error was raised while torch ran: something else went wrong, it failed "
    "with an exception"
)
_OF_A_TYPO = {
    "builtins.AttributeError": "'thing' object has no attribute 'other'; module "
    "'thing' has no attribute 'other'",
    "builtins.NameError": "name 'other' is not defined",
    "builtins.ImportError": "cannot import name 'other' from 'thing' (unknown location)",
    "builtins.ModuleNotFoundError": "No module named 'other'",
    "builtins.KeyError": "'other'",
    "builtins.TypeError": "thing() got an unexpected keyword argument 'other'; thing() received an "
    "invalid combination of arguments",
}
"""What an exception of a type says where a name is misspelt."""
_OF_ALMOST_ALL = ("torch._dynamo.exc.TorchDynamoException", "torch._dynamo.exc.TorchRuntimeError")
"""Types that Dynamo raises for failures of many causes, a misspelt name among them."""
_EVERY_EXCEPTION = ("builtins.Exception", "builtins.BaseException", "builtins.object")


@frozen
class WantedCause:
    """An exception in the chain below the raised one: its __cause__, or else its __context__ (also
    below 'from None'), and so on down.

    ``cause: {type: ZeroDivisionError, match: by zero}``
    """

    form = Form({})
    type: Exception_
    """The exception's dotted path, or the name of a builtin.

    For example ``torch._dynamo.exc.BackendCompilerFailed``.
    """
    match: Pattern | None = None
    """A regular expression, searched in the text of this exception. For example ``by zero``."""

    def __str__(self) -> str:
        return _in_words(self.type, self.match)

    def is_in(self, causes: Iterable[Cause]) -> bool:
        """Whether one of the causes has the type and the text; raise ``PatternTooSlow``."""
        return any(
            _is_type(self.type, cause.ancestors)
            and (self.match is None or search(self.match, cause.message) is not None)
            for cause in causes
        )


@frozen
class Raises(Conditional):
    """The step raised this exception: the type or a subclass, with the pattern in its text, and
    with the cause in the chain below it.

    ``raises: {as: eager}``
    ``raises: {type: RuntimeError, match: after Dynamo Freezing}``
    ``raises: {type: torch._dynamo.exc.BackendCompilerFailed, cause: {type: ZeroDivisionError,
      match: by zero}}``
    """

    form = some_of("type", "as")
    patterns = (("match",), ("cause", "match"))
    instead = OF_WORDS
    expects_exception = True
    is_offline = True
    measure = staticmethod(lambda arguments, value: {"eager": value(RAISED)})
    needs_result = False
    about = About.ANYTHING
    type: Exception_ | None = None
    """The exception's dotted path, or the name of a builtin.

    For example ``torch._dynamo.exc.BackendCompilerFailed``.
    """
    match: Pattern | None = None
    """A regular expression, searched in the text. For example ``after Dynamo Freezing``."""
    cause: Annotated[WantedCause, Form({"$ref": "#/$defs/cause"})] | None = None
    as_eager: Annotated[bool, Form({"enum": [EAGER]})] = False
    """The exception is eager's: the same type, no other one, and the same text, or with match both
    texts have the pattern. For example ``eager``."""
    before: Literal["backend"] | None = None
    """backend: Dynamo raises it while it traces the function, before the backend gets a graph, as
    eager would. Then no graph is the proof of the step, and a backend that got one is a failure.
    For example ``backend``."""

    @property
    def claims_refusal(self) -> bool:
        """Where the spec says so, or eager raises the same."""
        return self.before is not None or self.as_eager

    @property
    def names(self) -> tuple[str, ...]:
        """Eager, where its exception is compared."""
        return (EAGER,) if self.as_eager else ()

    def measurement(self) -> Facts | None:
        """The worker sends eager's exception where it is compared."""
        return {"as": EAGER} if self.as_eager else None

    @classmethod
    def read(cls, body: Json) -> Self:
        """Read type and pattern."""
        for described, *path in ((body, "match"), (body.get("cause", {}), "cause", "match")):
            check_searched(
                described.get("match"),
                *path,
                hint="match at least one character, or leave the pattern out",
            )
        if "as" in body and "type" in body:
            raise BadExpectation(
                "type together with as", "as: eager asks for eager's type; use one of them", "type"
            )
        cause = WantedCause(**body["cause"]) if "cause" in body else None
        return cls(
            **{
                **{key: value for key, value in body.items() if key != "as"},
                "cause": cause,
                "as_eager": "as" in body,
            }
        )

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge the type (a subclass passes), then the text, then the chain of causes."""
        eager, raised = facts.measured["eager"] if self.as_eager else None, facts.raised
        if self.as_eager and eager is None:
            return [Verdict.failed("what eager raises", "eager raised no exception")]
        type_ = str(self.type if eager is None else eager["type"])
        expected = (
            _in_words(type_, self.match)
            + (", as eager" if eager else "")
            + (f", caused by {self.cause}" if self.cause else "")
            + (f", before the {self.before} gets a graph" if self.before else "")
        )
        if raised is None:
            return [Verdict.failed(expected, "no exception")]

        def failed(observed: str, detail: str = raised.traceback, more: str = "") -> list[Verdict]:
            return [Verdict.failed(expected + more, observed, detail=detail)]

        message, of_eager = raised.message, eager["message"] if eager else ""
        observed = f"{raised.type}: {next(iter(message.strip().splitlines()), '')}"
        if raised.type != type_ if eager else not _is_type(type_, raised.ancestors):
            return failed(observed)
        try:
            if eager and self.match is None and message != of_eager:
                ours, theirs = text_of(message), text_of(of_eager)
                return failed(f"{type_}: {ours}", detail="", more=f": {theirs}")
            if eager and self.match is not None and search(self.match, of_eager) is None:
                return failed(f"eager raised {type_}: {text_of(of_eager)}", detail="")
            if self.match is not None and search(self.match, message) is None:
                return failed(observed, detail=message)
            if self.before and (why := _why_not_before(facts)):
                return failed(f"{observed}: {why}")
            if self.cause is None or self.cause.is_in(raised.causes):
                return [Verdict.passed(expected, observed)]
        except PatternTooSlow:
            return [Verdict.error(expected, "pattern too slow")]
        chain = "; caused by ".join(f"{cause.type}: {cause.message}" for cause in raised.causes)
        return failed(f"{observed}; caused by {text_of(chain or 'nothing')}")

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """No exception, one of an unrelated type, another text if the text is expected, and
        likewise for the cause.
        """
        if (raised := facts.raised) is None:
            return
        another: dict[str, Any] = {"type": _ANOTHER, "ancestors": (_ANOTHER, *_EVERY_EXCEPTION)}
        said = _OF_A_TYPO.get(raised.type, "")
        changes = {"none raised": None, "another type": replace(raised, **another)}
        if self.match is not None or self.as_eager:
            changes["another text"] = replace(raised, message=said or _ANOTHER_TEXT)
        for name, change in changes.items():
            yield Mutant(name, replace(facts, raised=change))
        is_like = raised.type != "builtins.TypeError" or "argument" in raised.message
        if self.as_eager and said and is_like and (not self.match or search(self.match, said)):
            yield Mutant("a misspelt name in the function", facts)
        if self.before and facts.dynamo is not None:
            yield Mutant(
                "after the backend", replace(facts, dynamo=replace(facts.dynamo, graphs=1))
            )
        if self.cause is None:
            return
        of_causes: dict[str, dict[str, Any] | None] = {"no cause": None, "another cause": another}
        if self.cause.match is not None:
            of_causes["another text of the cause"] = {"message": _ANOTHER_TEXT}
        for name, changed in of_causes.items():
            kept = () if changed is None else raised.causes
            causes = tuple(replace(cause, **(changed or {})) for cause in kept)
            yield Mutant(name, replace(facts, raised=replace(raised, causes=causes)))


RAISED = "<raised by eager>"
"""The name of the exception of the eager side, which no spec can write."""


def _why_not_before(facts: StepFacts) -> str:
    """Return why a step does not show that dynamo raised before the backend got a graph; empty
    where it does.
    """
    if facts.dynamo is None:
        return "what dynamo did was not recorded"
    if facts.dynamo.graphs:
        return f"the backend had got {facts.dynamo.graphs} graphs of the function"
    return (
        "" if facts.dynamo.frames else "dynamo traced no function of the case: the call was eager"
    )


def is_general(body: Json) -> bool:
    """Whether almost any failure fits: the type is a base class of all exceptions, or a wide one
    and no ``match`` is specific.
    """
    name, patterns = (
        body.get("type", "").removeprefix("builtins."),
        [body.get("match"), (body.get("cause") or {}).get("match")],
    )
    is_specific = any(
        pattern
        and (check_pattern(pattern) or search(pattern, "") or not is_general_pattern(pattern))
        for pattern in patterns
    )
    is_wide = (
        isinstance(getattr(builtins, name, None), type) or name in _OF_ALMOST_ALL
    ) and not is_specific
    return is_wide or f"builtins.{name}" in _EVERY_EXCEPTION


def _in_words(type_: str, pattern: str | None) -> str:
    return type_ + (f" with text matching /{pattern}/" if pattern else "")


def _is_type(type_name: str, ancestors: tuple[str, ...]) -> bool:
    return (type_name if "." in type_name else f"builtins.{type_name}") in ancestors
