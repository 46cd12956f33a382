"""What a compiler wrote for a target, read without running anything, and what is expected of it:
``resources`` and ``metadata``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from torch_conformance.matching.generated_code import Code
from torch_conformance.model.conditions import Surroundings, choose
from torch_conformance.model.expectation import Mutant, Reading, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import STAGES, STAGES_OF_VENDOR, TARGETS
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.expectation_base import (
    BadExpectation,
    Conditional,
    Kind,
    check_count,
    count_mutants,
    judge_count,
    text_of,
)
from torch_conformance.vocabulary.expectations.values import changed, same
from torch_conformance.vocabulary.forms import TEMPLATE, Count, Form, common
from torch_conformance.vocabulary.worker_session import Facts, Lookup

KERNEL = "<kernel>"
"""The name of what the compiler recorded of a kernel; no value of a spec can have this name."""


# -- the texts of the stages -----------------------------------------------------------------------

_COMMENTS = {"ttir": "//", "ttgir": "//", "llir": ";", "amdgcn": ";", "ptx": "//"}
"""How a comment begins, by stage; it ends with its line."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'


def code_of_stage(text: str, stage: str) -> Code:
    """Return the text of a stage without comments, and without lines that are empty then."""
    mark = _COMMENTS[stage]
    token = re.compile(rf"{_STRING}|{re.escape(mark)}[^\n]*")
    stripped = token.sub(
        lambda match: "" if match[0].startswith(mark) else match[0], text.replace("\r\n", "\n")
    )
    kept = [
        (number, line.rstrip())
        for number, line in enumerate(stripped.split("\n"), start=1)
        if line.strip()
    ]
    return Code(
        "\n".join(line for _, line in kept),
        tuple(number for number, _ in kept),
        text.count("\n") + 1,
    )


def commented_out_stage(text: str, stage: str) -> str:
    """Return a stage with every line commented out."""
    return "".join(f"{_COMMENTS[stage]} {line}" for line in text.splitlines(keepends=True))


_ENTRIES = {
    "amdgcn": re.compile(r"^\s*\.amdhsa_kernel\s+(\w+)", re.MULTILINE),
    "ptx": re.compile(r"^(?:\.visible\s+)?\.entry\s+(\w+)", re.MULTILINE),
}


def kernels_of(isa: str, stage: str) -> list[str]:
    """Return the names of the kernels."""
    return _ENTRIES[stage].findall(isa)


# -- registers, spills and stack -------------------------------------------------------------------

_AMD = {
    "registers": (r"^\s*\.vgpr_count:\s+(\d+)$",),
    "spills": (r"^\s*\.vgpr_spill_count:\s+(\d+)$", r"^\s*\.sgpr_spill_count:\s+(\d+)$"),
    "stack": (r"^\s*\.private_segment_fixed_size:\s+(\d+)$",),
}
_NVIDIA = {
    "registers": (r"\bUsed (\d+) registers\b",),
    "spills": (r"\b(\d+) bytes spill stores\b", r"\b(\d+) bytes spill loads\b"),
    "stack": (r"\b(\d+) bytes stack frame\b",),
}


class NotReported(ValueError):
    """The compiler reported no such quantity, or not once for each kernel."""


def of_compiler(name: str, vendor: str, texts: Sequence[str]) -> int:
    """Return registers, spills or stack of the kernel in the texts that has most of it; raise
    ``NotReported``.
    """
    found = _reported(name, vendor, texts)[2]
    return max(
        map(sum, zip(*([int(match[1]) for match in matches] for matches in found), strict=True))
    )


def with_amount(name: str, vendor: str, texts: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the texts with another amount for each kernel."""
    place, report, found = _reported(name, vendor, texts)
    changes = (
        (match.span(1), amount)
        for matches, amount in zip(found, (number, 0), strict=False)
        for match in matches
    )
    for (start, end), amount in sorted(changes, reverse=True):
        report = f"{report[:start]}{amount}{report[end:]}"
    return (*texts[:place], report, *texts[place + 1 :])


def _reported(
    name: str, vendor: str, texts: Sequence[str]
) -> tuple[int, str, list[list[re.Match[str]]]]:
    """Return which text has the report, the report, and the places of the amounts, of each pattern
    one for each kernel.
    """
    # amdgcn is the last stage of AMD; for NVIDIA the report of ptxas follows the stages
    place = len(STAGES["hip"]) - 1 if vendor == "amd" else len(STAGES["cuda"])
    if len(texts) <= place:
        raise NotReported("the compiler's report is missing")
    stages = STAGES_OF_VENDOR[vendor]
    kernels = max(1, len(kernels_of(texts[len(stages) - 1], stages[-1])))
    found = [
        list(re.finditer(pattern, texts[place], re.MULTILINE))
        for pattern in (_AMD if vendor == "amd" else _NVIDIA)[name]
    ]
    for matches in found:
        if len(matches) != kernels:
            of = "" if kernels == 1 else f", for {kernels} kernels"
            raise NotReported(f"the compiler reported it {len(matches)} times{of}")
    return place, texts[place], found


# -- the expectations ------------------------------------------------------------------------------


def measure_resources(arguments: Facts, value: Lookup) -> Json:
    """Return the shared memory that the compiler recorded, the most of any kernel; the rest is in
    the texts that it wrote.
    """
    shared = value(KERNEL).get("shared")
    # several kernels of generated code differ: a map by kernel
    return {"shared": max(shared.values()) if isinstance(shared, dict) and shared else shared}


TARGET = "target"
"""A bound of ``shared``: what one block of the target may use."""

_SHARED = Form(
    {
        "title": "shared memory",
        "type": ["integer", "string", "object"],
        **TEMPLATE,
        "if": {"type": "object"},
        "then": {
            "title": "range of shared memory",
            "description": "A closed range.",
            "type": "object",
            "minProperties": 1,
            "properties": {
                "min": {**common("integer"), "description": "The least that holds."},
                "max": {
                    "description": "The most that holds: a number, or target.",
                    "type": ["integer", "string"],
                    "pattern": f"^{TARGET}$|{TEMPLATE['pattern']}",
                    "examples": [TARGET],
                },
            },
            "additionalProperties": False,
        },
    }
)


@frozen
class Resources(Conditional):
    """Registers, spills, stack and shared memory of a kernel that is compiled for a target, as its
    compiler reports them.

    Of code that Inductor generates, the most of any kernel.

    ``resources: {registers: {max: 128}, spills: 0, shared: {max: target}}``
    """

    form = Form({"minProperties": 1})
    needs_target = True
    is_offline = True
    measure = staticmethod(measure_resources)
    registers: Count = None
    """Vector registers of a thread, as the compiler counts them."""
    spills: Count = None
    """What did not fit into registers: registers for AMD, bytes of stores and loads for NVIDIA."""
    stack: Count = None
    """Bytes of memory of a thread for its stack."""
    shared: Annotated[Any, _SHARED] = None
    """Bytes of shared memory (LDS) of a block; {max: target} is what a block of the target may use.
    For example ``{max: target}``, ``{max: 65536}``, ``0``."""

    @classmethod
    def check(cls, body: Json) -> None:
        """Check that there is a resource, and the bound of shared memory."""
        shared = body.get("shared", 0)
        is_of_target = isinstance(shared, dict) and shared.get("max") == TARGET
        if is_of_target and "min" in shared:
            raise BadExpectation(
                "{max: target} together with min", "write only {max: target}", "shared", "min"
            )
        if not body.keys() & set(_RESOURCES):
            raise BadExpectation("no resource is named", f"name one of {', '.join(_RESOURCES)}")
        if not is_of_target:
            check_count(shared, "shared")

    def _bounds(self, surroundings: Surroundings) -> Iterator[tuple[str, Any]]:
        """Yield each count with its name, and with the bound of the target as a number."""
        for name in _RESOURCES:
            count = getattr(self, name)
            if count == {"max": TARGET}:
                of_here = (surroundings.vendor, surroundings.arch)
                yield (
                    name,
                    {
                        "max": next(
                            target.shared
                            for target in TARGETS.values()
                            if (target.vendor, target.arch) == of_here
                        )
                    },
                )
            elif count is not None:
                yield name, count

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge each resource on its own. What the compiler did not report is an ERROR."""
        for name, count in self._bounds(facts.surroundings):
            try:
                observed, why = _amount(name, facts), ""
            except NotReported as error:
                observed, why = None, str(error)
            yield judge_count(count, observed, facts, leaf=name, absent=why)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each resource on its own, with another amount; then none reported."""
        nothing = replace(facts, code=()).with_measured(shared=None)
        for name, count in self._bounds(facts.surroundings):

            def with_number(number: float, name: str = name) -> Reading:
                if name == "shared":
                    return facts.with_measured(shared=int(number))
                return replace(
                    facts,
                    code=with_amount(
                        name, facts.surroundings.vendor or "", facts.code, int(number)
                    ),
                )

            yield from count_mutants(
                count,
                _amount(name, facts),
                facts,
                with_number,
                leaf=name,
                is_budget=True,
            )
            yield Mutant("not reported", nothing, leaf=name)


def _amount(name: str, facts: Reading) -> int:
    if name != "shared":
        return of_compiler(name, facts.surroundings.vendor or "", facts.code)
    shared = facts.measured["shared"]
    if not isinstance(shared, int) or isinstance(shared, bool) or shared < 0:
        raise NotReported("the compiler reported no amount")
    return shared


_RESOURCES = ("registers", "spills", "stack", "shared")


@frozen
class Metadata(Kind):
    """What Triton recorded of a kernel that is compiled for a target, by name: the options that
    reached the compiler, shared memory.

    Of code that Inductor generates, each kernel must have the value. A value, or a list of values
    under conditions.

    ``metadata: {num_warps: 4, matrix_instr_nonkdim: [{when: {vendor: amd}, value: 16}]}``
    """

    form = Form(
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "description": "The value, or a list of {when, value}.",
                "examples": [4],
            },
        }
    )
    needs_target = True
    is_offline = True
    is_whole = True
    measure = staticmethod(lambda arguments, value: dict(value(KERNEL)))
    values: Mapping[str, Any]

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge each value on its own. A name that the compiler does not record is an ERROR."""
        for name, conditional in self.values.items():
            applies, required = choose(conditional, facts.surroundings)
            expected = f"{name} {text_of(required)}"
            if not applies:
                yield Verdict.not_applicable(name)
            elif name not in facts.measured:
                yield Verdict.error(
                    expected,
                    f"the compiler records no '{text_of(name)}'",
                    leaf=name,
                    detail=f"it records {', '.join(sorted(facts.measured))}",
                )
            else:
                value = facts.measured[name]
                yield Verdict.of(same(value, required), expected, text_of(value), leaf=name)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each value on its own: another one, and none."""
        for name in self.values:
            if choose(self.values[name], facts.surroundings)[0] and name in facts.measured:
                yield Mutant(
                    "another value",
                    facts.with_measured(**{name: changed(facts.measured[name])}),
                    leaf=name,
                )
                rest = {key: value for key, value in facts.measured.items() if key != name}
                yield Mutant("absent", replace(facts, measured=rest), leaf=name)
