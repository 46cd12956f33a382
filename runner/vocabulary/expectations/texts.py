"""Texts: ``text`` of a value, ``log`` of torch, ``exit`` of a child, and patterns that any text matches, which are refused."""

import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.conditions import Surroundings, choose, holds
from runner.model.expectation import Judgement, Mutant, Status, StepFacts
from runner.model.matching.filecheck import CheckFile, Kind
from runner.model.matching.patterns import ANYTHING, are_general, check_pattern, finds, is_general, is_general_pattern, search
from runner.model.matching.time_limit import PatternTooSlow
from runner.model.protocol import Json
from runner.vocabulary.expectations.expectation_base import (
    COUNT_MUTATIONS,
    BadExpectation,
    Conditional,
    OfValue,
    check_count,
    count_mutants,
    parse_count,
)

MOST = 1_000_000
"""The maximum length of a text from the worker, in characters, counted from the end."""


TEXT_MUTATIONS = ("its part removed", "its match removed")
"""The mutants of a text."""

ANY_TEXT = "every character, each alone"
"""The mutant of a text that has what stands in almost every text."""

LACKED = "a lacked part added"
"""The mutant of a text that must lack parts."""


def parts_of(body: str | list[str] | None) -> tuple[str, ...]:
    """Return the expected parts."""
    return () if body is None else (body,) if isinstance(body, str) else tuple(body)


def check_text(body: Any) -> None:
    """Check the pattern; raise ``BadExpectation``."""
    check_searched(body.get("matches"), ("matches",), "match at least one character")


def check_searched(pattern: str | None, path: tuple[str, ...], hint: str) -> None:
    """Check a pattern, if there is one; raise ``BadExpectation`` for no pattern, and with a hint for one that matches every text."""
    if pattern is None:
        return
    if (reason := check_pattern(pattern)) is not None:
        raise BadExpectation(f"the pattern is not a regular expression: {reason}", "escape ( ) [ ] { } . * + ? with \\", path=path)
    if search(pattern, "") is not None:
        raise BadExpectation("the pattern matches an empty text, so it matches every text", hint, path=path)


def check_lacked(body: Any) -> None:
    """Check that a text can have the parts that it must have without one that it must lack; raise ``BadExpectation``."""
    for part in parts_of(body.get("lacks")):
        if any(part in contained for contained in parts_of(body.get("contains"))):
            raise BadExpectation(f"no text contains what it must and lacks {part!r}", "remove one of the two", path=("lacks",))


def check_times(body: Any) -> None:
    """Check how often the parts must be in a text; raise ``BadExpectation``."""
    count = body.get("count")
    if count is None:
        return
    if "contains" not in body:
        raise BadExpectation("count without contains", "write contains: TEXT beside it", path=("count",))
    check_count(count, "count")
    for value in [entry["value"] for entry in count] if isinstance(count, list) else [count]:
        required = parse_count(value)
        if required.most == 0:
            raise BadExpectation("0 times is no part of a text that contains it", "write lacks: TEXT", path=("count",))
        if required.least == 1 and required.most is None:
            raise BadExpectation("{min: 1} is true for every text that contains it", "remove count", path=("count",))


def judge_text(text: str, contains: tuple[str, ...], pattern: str | None, *, what: str, lacks: tuple[str, ...] = ()) -> Judgement:
    """Judge a text. The judgement shows the first part that is missing, or that is there although it must not be."""
    for part in lacks:
        if part in text:
            at = text.index(part)
            return Judgement.failed(expected=f"{what} without {part!r}", observed=_shown(text[max(at - 60, 0) :]), detail=text[-4000:])
    for part in contains:
        if part not in text:
            return Judgement.failed(expected=f"{what} with {part!r}", observed=_shown(text), detail=text[-4000:])
    expected = f"{what} with " + " and ".join([*map(repr, contains), *([f"a match of /{pattern}/"] if pattern else [])])
    expected += "".join(f", without {part!r}" for part in lacks)
    if lacks and _may_be_cut(text):
        return Judgement.error("the text is longer than what is kept of it, so its beginning is not known", expected=expected)
    try:
        matches = pattern is None or search(pattern, text) is not None
    except PatternTooSlow:
        return Judgement.error("pattern too slow", expected=expected)
    return Judgement.of(matches, expected=expected, observed=_shown(text), detail="" if matches else text[-4000:])


def text_mutants(text: str, contains: tuple[str, ...], pattern: str | None, changed: Callable[[str], StepFacts]) -> Iterator[Mutant]:
    """Yield the text without each part, and without the matches of the pattern. ``changed`` makes facts with a text."""
    for part in contains:
        yield Mutant(name="its part removed", facts=changed(text.replace(part, "")), where=repr(part))
    if pattern is None:
        return
    # the text around a removed match may match again
    for _ in range(100):
        match = search(pattern, text)
        if match is None:
            yield Mutant(name="its match removed", facts=changed(text), where=f"/{pattern}/")
            return
        text = text[: match.start()] + text[match.end() :]
    yield Mutant.not_applicable("its match removed", "more than 100 matches", where=f"/{pattern}/")


def _judge_measured(check: "Text | Log", facts: StepFacts, surroundings: Surroundings, what: str) -> Judgement:
    """Judge the text that was measured; where all else holds, how often each part is in it. Occurrences do not overlap."""
    text, parts = facts.measured["text"], parts_of(check.contains)
    judged = judge_text(text, parts, check.matches, what=what, lacks=parts_of(check.lacks))
    applies, value = choose(check.count, surroundings)
    if check.count is None or not applies or judged.status is not Status.HELD:
        return judged
    required = parse_count(value)
    expected = f"{judged.expected}, as often as {required}"
    for part in parts:
        number = text.count(part)
        too_many = required.most is not None and number > required.most
        if _may_be_cut(text) and not too_many:
            return Judgement.error("the text is longer than what is kept of it, so its beginning is not known", expected=expected)
        if not required.holds(number):
            return Judgement.failed(expected=expected, observed=f"{part!r} {number} times", detail=text[-4000:])
    return replace(judged, expected=expected)


def _mutants_of_measured(check: "Text | Log", facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
    """The text without the expected parts and matches, with parts as often as they must not be, and with what it must lack."""
    if not holds(check.when, surroundings):
        return
    text, parts = facts.measured["text"], parts_of(check.contains)
    yield from text_mutants(text, parts, check.matches, lambda other: facts.with_measured(text=other))
    if (parts or check.matches) and not check.lacks and check.count is None:
        yield Mutant(name=ANY_TEXT, facts=facts.with_measured(text=ANYTHING[0]))
    for part in parts if check.count is not None else ():

        def so_often(number: float, part: str = part) -> StepFacts:
            return facts.with_measured(text="\n".join([text.replace(part, ""), *[part] * int(number)]))

        yield from count_mutants(check.count, text.count(part), surroundings, so_often, where=repr(part))
    for part in parts_of(check.lacks):
        yield Mutant(name=LACKED, facts=facts.with_measured(text=text + part), where=repr(part))


def _may_be_cut(text: str) -> bool:
    """Whether a text is as long as what is kept: counted in characters or bytes, of which a first one may be half."""
    return len(text.encode("utf-8", "surrogatepass")) > MOST - 8


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f"{len(text)} characters: {line[:160]}{'...' if len(line) > 160 else ''}" if text else "an empty text"


_LONGER = "name more of what is expected: at least two letters or digits beside each other"
_NARROWER = "name a word that only the expected text has"


def check_specific(body: Any, *keys: str) -> None:
    """Check that parts and pattern are in no text by chance; raise ``BadExpectation``. ``keys`` are those of parts."""
    for key in keys or ("contains",):
        for place, part in _placed(body, key):
            if is_general(part):
                raise BadExpectation(f"almost every text contains {part!r}: this cannot fail", _LONGER, path=place)
    check_specific_pattern(body, "matches")


def check_specific_pattern(body: Any, key: str) -> None:
    """Check that a pattern matches no text by chance; raise ``BadExpectation``."""
    pattern = body.get(key)
    if pattern is not None and is_general_pattern(pattern):
        raise BadExpectation(f"almost every text matches /{pattern}/: this cannot fail", _NARROWER, path=(key,))


def check_specific_checks(checks: CheckFile) -> None:
    """Check that directives do not pass on any text; raise ``BadExpectation``."""
    if are_general(checks):
        raise BadExpectation("the directives pass on almost every text: they cannot fail", _NARROWER)


def _placed(body: Any, key: str) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the parts at a key, each with its path."""
    parts = body.get(key)
    return [((key, index) if isinstance(parts, list) else (key,), part) for index, part in enumerate(parts_of(parts))]


# -- guards ---------------------------------------------------------------------------------------------------------

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
"""
"""The guards of a function without arguments, as torch 2.13 writes them: every frame has these."""

OTHER_FRAMES = """\
TYPE_MATCH: ___check_type_id(L['gadgets'], 139000000000003), type=<class 'dict'>
TYPE_MATCH: ___check_type_id(L['gadgets']['widget'], 139000000000004), type=<class 'int'>
LENGTH_CHECK: len(L['gadgets']) == 97
EQUALS_MATCH: L['gadgets']['widget'] == 1009
TENSOR_MATCH: check_tensor(L['voltage'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, \
device=None, requires_grad=False, size=[97, 89], stride=[89, 1])
DIMENSION_DYNAMIC_MARKING_GUARD: hasattr(L['voltage'], '_dynamo_dynamic_indices') == False
ID_MATCH: ___check_obj_id(G['gauge'], 139000000000005), type=<class 'function'>
DICT_CONTAINS: not ___dict_contains('forward', G['gauge'].__dict__)
"""
"""Guards of functions that a spec does not mean."""

_KINDS = tuple(line.partition(":")[0] for line in OTHER_FRAMES.splitlines())
_HINT = "name a guard by its kind and its source, as in TENSOR_MATCH: check_tensor(L['x']"


def check_guards(body: Any, checks: CheckFile | None) -> None:
    """Refuse parts, patterns and directives of any guards, with ``BadExpectation``. A kind that not every frame has may be named alone."""
    for place, part in _placed(body, "contains"):
        if is_general(part):
            raise BadExpectation(f"{part!r} is in the guards of every function: this cannot fail", _HINT, path=place)
        _refuse(repr(part), place, lambda text, part=part: part in text, names_kind=_names_kind(part))
    if (pattern := body.get("matches")) is not None:
        _refuse(f"a match of /{pattern}/", ("matches",), lambda text: finds(pattern, [text]), names_kind=_names_kind(pattern))
    if checks is not None:
        named = any(_names_kind(directive.pattern) for directive in checks if directive.kind is not Kind.NOT)
        _refuse("what the directives match", ("checks",), lambda text: are_general(checks, [text]), names_kind=named)


def _refuse(what: str, path: tuple[str | int, ...], is_in: Any, *, names_kind: bool) -> None:
    if is_in(EVERY_FRAME):
        raise BadExpectation(f"{what} is in the guards of every function: this cannot fail", _HINT, path=path)
    if not names_kind and is_in(EVERY_FRAME + OTHER_FRAMES):
        raise BadExpectation(f"{what} is in the guards of most functions", _HINT, path=path)


def _names_kind(text: str) -> bool:
    return any(re.search(rf"(?<!\w){kind}(?!\w)", text) for kind in _KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(OfValue):
    """``text: {of: command, contains: ["nvcc ", "-Wx"], lacks: -Wy}``."""

    kind: ClassVar[str] = "text"
    mutations: ClassVar[tuple[str, ...]] = (*TEXT_MUTATIONS, *COUNT_MUTATIONS, ANY_TEXT, LACKED)
    contains: str | list[str] | None = None
    count: Any = None
    matches: str | None = None
    lacks: str | list[str] | None = None

    @classmethod
    def check(cls, body: Any) -> None:
        """Check parts and pattern."""
        check_text(body)
        check_lacked(body)
        check_times(body)

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge the text; a value of another type is a failure."""
        if facts.measured["text"] is None:
            return [Judgement.failed(expected=f"{self.of} is a text", observed=facts.measured["type"])]
        return [_judge_measured(self, facts, surroundings, self.of)]

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """The text without the expected parts and matches, with parts as often as they must not be, and with what it must lack."""
        yield from _mutants_of_measured(self, facts, surroundings)


def measure_text(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the text, or null for a value of another type; and the type."""
    named_value = value(arguments["of"])
    return {"text": named_value[-MOST:] if isinstance(named_value, str) else None, "type": f"a {type(named_value).__name__}"}


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
"""
"""What torch logs of any function, with TORCH_LOGS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Conditional):
    """``log: {contains: planted crash}``."""

    kind: ClassVar[str] = "log"
    is_recorded: ClassVar[bool] = True
    mutations: ClassVar[tuple[str, ...]] = (*TEXT_MUTATIONS, *COUNT_MUTATIONS, ANY_TEXT, LACKED)
    contains: str | list[str] | None = None
    count: Any = None
    matches: str | None = None
    lacks: str | list[str] | None = None

    @classmethod
    def check(cls, body: Any) -> None:
        """Check parts and pattern, which must be in no text by chance."""
        check_text(body)
        check_specific(body)
        for place, part in _placed(body, "contains"):
            if part in _EVERY_LOG:
                raise BadExpectation(f"torch logs {part!r} of every function: this cannot fail", _NARROWER, path=place)
        if (pattern := body.get("matches")) is not None and finds(pattern, [_EVERY_LOG]):
            raise BadExpectation(f"torch logs a match of /{pattern}/ of every function: this cannot fail", _NARROWER, path=("matches",))
        check_lacked(body)
        check_times(body)

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge the text."""
        return [_judge_measured(self, facts, surroundings, "standard error")]

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """The text without the expected parts and matches, with parts as often as they must not be, and with what it must lack."""
        yield from _mutants_of_measured(self, facts, surroundings)


def measure_log(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the end of the step's standard error."""
    return {"text": value(STDERR)}


_OF_EVERY_FAILURE = (
    "process spawnprocess-1: traceback (most recent call last):\n"
    '  file "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n    self.run()\n'
    '  file "/usr/lib/python3.11/site-packages/torch/program.py", line 1, in <module>\n    raise error\nerror: exception failed '
    "no module named 'other' cannot import name 'other' name 'other' is not defined 'thing' object has no attribute 'other' "
    "invalid syntax no such file or directory usage: "
    + " ".join(f"{name}: " for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException))
).lower()
"""What programs print that fail for any reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(Conditional):
    """``exit: {code: 0}`` or ``exit: {nonzero: true, stderr: "planted in the choice"}``."""

    kind: ClassVar[str] = "exit"
    mutations: ClassVar[tuple[str, ...]] = ("another code", "its part removed")
    code: int | None = None
    nonzero: bool = False
    stderr: str | list[str] | None = None
    stdout: str | list[str] | None = None

    @classmethod
    def check(cls, body: Any) -> None:
        """Check the texts. A non-zero code needs one, because a child that fails to start has a non-zero code too."""
        if body.get("code") != 0 and not body.keys() & {"stderr", "stdout"}:
            hint = "add stderr: a text that only this failure prints; a child that fails to start has a non-zero code too"
            raise BadExpectation("a non-zero exit code without 'stderr'", hint)
        check_specific(body, "stderr")
        printed = parts_of(body.get("stderr"))
        if (
            body.get("code") != 0
            and printed
            and "stdout" not in body
            and all(part.strip().lower() in _OF_EVERY_FAILURE for part in printed)
        ):
            hint = "name words that only this failure prints: a child that cannot import something prints a traceback too"
            raise BadExpectation(f"{' and '.join(map(repr, printed))} is what any failure prints: this cannot fail", hint, path=("stderr",))

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge the code, then the texts."""
        expected = "a non-zero exit code" if self.nonzero else f"exit code {self.code}"
        if facts.exit is None:
            return [Judgement.error("no child was spawned", expected=expected)]
        code = facts.exit.code
        if (code == 0) if self.nonzero else (code != self.code):
            return [Judgement.failed(expected=expected, observed=f"exit code {code}", detail=facts.exit.stderr)]
        judged = []
        if self.stderr is not None:
            judged.append(judge_text(facts.exit.stderr, parts_of(self.stderr), None, what=f"{expected} and standard error"))
        if self.stdout is not None:
            printed = Judgement.error("the child shares the standard output of the case", expected="the standard output of a program")
            if facts.exit.stdout is not None:
                printed = judge_text(facts.exit.stdout, parts_of(self.stdout), None, what=f"{expected} and standard output")
            judged.append(replace(printed, leaf="stdout"))
        return judged or [Judgement.passed(expected=expected, observed=f"exit code {code}")]

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """Another code, and standard error without its text."""
        child = facts.exit
        if child is None or not holds(self.when, surroundings):
            return
        another = replace(facts, exit=replace(child, code=0 if self.nonzero else child.code + 1))
        yield Mutant(name="another code", facts=another, leaf="stdout" if self.stderr is None and self.stdout is not None else "")
        if self.stderr is not None:
            yield from text_mutants(
                child.stderr, parts_of(self.stderr), None, lambda text: replace(facts, exit=replace(child, stderr=text))
            )
        if self.stdout is not None and child.stdout is not None:
            printed = text_mutants(child.stdout, parts_of(self.stdout), None, lambda text: replace(facts, exit=replace(child, stdout=text)))
            yield from (replace(mutant, leaf="stdout") for mutant in printed)
