"""Compares two dumps of ``calibrate_simulation.py``: what is normalized, by name; the row of each
case; the record that is kept.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1
"""Of the record."""


@dataclass(frozen=True)
class Normalized:
    """A part of the texts that is not compared, and why."""

    pattern: re.Pattern[str]
    put: str
    why: str


NORMALIZED: Mapping[str, Normalized] = {
    "comments": Normalized(
        re.compile(r"^\s*#.*$\n?", re.MULTILINE),
        "",
        "comments name folders, graphs and places in the source",
    ),
    "folders": Normalized(
        re.compile(r"/\S*/(?:torchinductor_\w+|calibrate-\w+|inductor)/\S+"),
        "PATH",
        "each dump has folders of its own",
    ),
    "backend_hash": Normalized(
        re.compile(r"'backend_hash': '\w+'"),
        "'backend_hash': HASH",
        "a digest of Triton's files and driver",
    ),
    "address": Normalized(
        re.compile(r"(?<= )[0-9a-f]{12}$", re.MULTILINE),
        "ADDRESS",
        "the comment on a frozen parameter has the address of the object",
    ),
    "cache options": Normalized(
        re.compile(r"'autotune_(local|remote)_cache': \w+"),
        r"'autotune_\1_cache': OPTION",
        "the metadata of a kernel repeat these options, which a simulated GPU turns off; the "
        "real side disables every cache by "
        "force_disable_caches and leaves these as they are",
    ),
    "ptx version": Normalized(
        re.compile(r"^\.version \d+\.\d+$", re.MULTILINE),
        ".version OF_THE_ASSEMBLER",
        "Triton writes the version of the assembler that it calls, and torch chooses the assembler",
    ),
    "spaces": Normalized(
        re.compile(r"[ \t]+$|\n(?=\n)", re.MULTILINE), "", "what the rows above leave"
    ),
}
"""By name, in the order in which they are applied.

A record counts the pairs of texts in which each differs.
"""


@dataclass
class Comparison:
    """What was compared so far."""

    most: int = 40
    """Lines of one difference that are kept."""
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NORMALIZED, 0))
    """By normalization: in how many pairs of texts the two sides differed there."""
    details: list[str] = field(default_factory=list)

    def plain(self, one: str, other: str) -> tuple[str, str]:
        """Return two texts without what is normalized, and count."""
        for name, row in NORMALIZED.items():
            self.counted[name] += [match[0] for match in row.pattern.finditer(one)] != [
                match[0] for match in row.pattern.finditer(other)
            ]
            one, other = row.pattern.sub(row.put, one), row.pattern.sub(row.put, other)
        return one.strip(), other.strip()

    def difference(self, heading: str, one: str, other: str) -> None:
        """Keep what differs between two texts."""
        lines = difflib.unified_diff(
            one.splitlines(), other.splitlines(), "real", "simulated", lineterm="", n=0
        )
        self.details.extend([heading, *[line[:300] for line in lines][: self.most]])


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _sides(real: Sequence[Any], simulated: Sequence[Any], count: int) -> dict[str, Any]:
    """Return a part of a case: how many there are, and whether both sides are equal, by digests of
    them.
    """
    return {
        "count": count,
        "real": _digest([str(one) for one in real]),
        "simulated": _digest([str(one) for one in simulated]),
    }


def case(real: Mapping[str, Any], simulated: Mapping[str, Any], told: Comparison) -> dict[str, Any]:
    """Return the record of a case."""
    sides = (real, simulated)
    raised = {
        name: one["raised"]
        for name, one in zip(("real", "simulated"), sides, strict=True)
        if "raised" in one
    }
    if raised:
        told.details.extend(f"{name} raised: {text[-800:]}" for name, text in raised.items())
        return {"raised": sorted(raised)}
    wrappers = [
        told.plain(*pair) for pair in zip(real["wrappers"], simulated["wrappers"], strict=False)
    ]
    for one, other in wrappers:
        if one != other:
            told.difference("wrapper", one, other)
    names, configs = (
        [_kernels(side, *parts) for side in sides]
        for parts in (("name",), ("name", "config", "shared"))
    )
    if configs[0] != configs[1]:
        told.details.append(f"configurations: real {configs[0]}, simulated {configs[1]}")
    candidates = [[one for selection in side["choices"] for one in selection] for side in sides]
    if candidates[0] != candidates[1]:
        told.difference("candidates", "\n".join(candidates[0]), "\n".join(candidates[1]))
    return {
        "graphs": [len(side["wrappers"]) for side in sides],
        "wrapper": _sides(*zip(*wrappers, strict=True), len(wrappers)),
        "candidates": _sides(*candidates, len(candidates[0])),
        "kernels": _sides(*map(dict.fromkeys, names), len(set(names[0]))),
        "configurations": _sides(*configs, len(configs[0])),
        "ptx": _ptx(real, simulated, told),
        "loaded": _loaded(real, simulated, told),
    }


def _kernels(side: Mapping[str, Any], *parts: str) -> list[Any]:
    return [tuple(kernel[part] for part in parts) for kernel in side["kernels"]]


def _ptx(real: Mapping[str, Any], simulated: Mapping[str, Any], told: Comparison) -> dict[str, int]:
    """Compare the PTX of the configurations that both sides have; ``of`` are all of the real
    side.
    """
    texts = [
        {(one["graph"], one["name"], one["config"]): one["ptx"] for one in side["kernels"]}
        for side in (real, simulated)
    ]
    equal = 0
    for key in (key for key in texts[0] if key in texts[1]):
        one, other = told.plain(texts[0][key], texts[1][key])
        equal += one == other != ""
        if one != other:
            told.difference(f"ptx of {key}", one, other)
    return {"equal": equal, "of": len(texts[0])}


def _loaded(
    real: Mapping[str, Any], simulated: Mapping[str, Any], told: Comparison
) -> dict[str, int]:
    """Count the configurations of the kernels as they were loaded on the GPU, and those that the
    simulation does not have.
    """
    known = {(kernel["name"], kernel["config"]) for kernel in simulated["kernels"]}
    loaded = [
        (name, config) for name, configs in real.get("launched", {}).items() for config in configs
    ]
    added = [one for one in loaded if one not in known]
    told.details.extend(f"added when loaded: {name} {config}" for name, config in added)
    return {"recorded": len(loaded), "added": len(added)}


def is_equal(part: Mapping[str, Any]) -> bool:
    """Say whether both sides of a part of a case are equal."""
    return bool(part["real"] == part["simulated"])


def is_whole(found: Mapping[str, Any]) -> bool:
    """Say whether a case is equal in everything that is compared."""
    if "raised" in found:
        return False
    parts = ("wrapper", "candidates", "kernels", "configurations")
    ptx, (one, other) = found["ptx"], found["graphs"]
    return (
        all(is_equal(found[part]) for part in parts)
        and one == other
        and ptx["equal"] == ptx["of"]
        and found["loaded"]["added"] == 0
    )


def compared(
    real: Mapping[str, Any], simulated: Mapping[str, Any], most: int = 40
) -> tuple[dict[str, Any], list[str]]:
    """Return the record of two dumps, and the differences as lines."""
    told = Comparison(most)
    texts = {name: side["properties"] for name, side in (("real", real), ("simulated", simulated))}
    wrong = sorted(
        name for name, value in texts["real"].items() if value != texts["simulated"].get(name)
    )
    told.details.extend(
        f"property {name}: real {texts['real'][name]}, simulated {texts['simulated'].get(name)}"
        for name in wrong
    )
    cases: dict[str, Any] = {}
    for name, one in real["cases"].items():
        told.details.append(f"\n## {name}")
        cases[name] = case(one, simulated["cases"].get(name, {"raised": "absent"}), told)
    record = {
        "format": FORMAT,
        "device": texts["real"]["name"],
        **{
            name: {part: side[part] for part in ("torch", "triton")}
            for name, side in (("real", real), ("simulated", simulated))
        },
        "properties": {"compared": len(texts["real"]), "differ": wrong},
        "normalized": told.counted,
        "cases": cases,
    }
    return json.loads(json.dumps(record)), told.details


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of a record."""
    yield "| case | graphs | wrapper | candidates | kernels | configurations | PTX |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in record["cases"].items():
        yield f"| {' | '.join([f'`{name}`', *_row(found)])} |"


def _row(found: Mapping[str, Any]) -> list[str]:
    if "raised" in found:
        return [f"{' and '.join(found['raised'])} raised", *[""] * 5]
    one, other = found["graphs"]
    counted = [
        f"{found[part]['count']} {_word(found[part])}"
        for part in ("candidates", "kernels", "configurations")
    ]
    return [
        str(one) if one == other else f"{one} and {other}",
        _word(found["wrapper"]),
        *("none" if cell == "0 equal" else cell for cell in counted),
        f"{found['ptx']['equal']} of {found['ptx']['of']}",
    ]


def _word(part: Mapping[str, Any]) -> str:
    return "equal" if is_equal(part) else "differ"
