"""Which of the cases: an id selects itself, shards share all cases without overlap, and mistakes
are said.
"""

import dataclasses
import random
import time

import pytest

from tests.fakes import case
from torch_conformance.language.backends import load_backends
from torch_conformance.matching.patterns import Ids, glob
from torch_conformance.model.case import Case, CaseId
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.optional.options import Selection
from torch_conformance.plan.selection import read_shard, select, shards_of, unmatched

IDS = [
    "cache/hit[backend=cpu,dtype=float32]",
    "cache/hit[backend=cpu,dtype=float64]",
    "cache/hit[backend=cuda,dtype=float32]",
    "cache/hit-again[backend=cpu,v=%5B1%2C2%5D]",
    "top[backend=rocm]",
    "top.x[backend=cpu]",
]


def made(id: str) -> Case:
    return dataclasses.replace(
        case(), id=CaseId(id), backend=id.split("backend=")[1].split(",")[0].rstrip("]")
    )


CASES = [made(id) for id in IDS]


def chosen(**criteria: object) -> list[str]:
    return [found.id for found in select(CASES, load_backends(), Selection(**criteria))]


@pytest.mark.parametrize("id", IDS)
def test_an_id_selects_itself_alone(id: str) -> None:
    assert chosen(select=[id]) == [id]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        *(
            ("*", 6),
            ("", 0),
            ("cache/*", 4),
            ("cache/hit[*", 3),
            ("*backend=cpu*", 4),
            ("top?x*", 1),
            ("top*", 2),
            ("*float??]", 3),
        ),
        *(
            ("*[backend=cuda,dtype=float32]", 1),
            ("CACHE/*", 0),
            ("hit*", 0),
            ("*.*", 1),
            ("(top|cache)*", 0),
            ("[ct]*", 0),
            ("*\\*", 0),
        ),
    ],
)
def test_only_star_and_question_mark_are_special(pattern: str, count: int) -> None:
    assert len(chosen(select=[pattern])) == count


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        *(
            ("nothing", IDS[0]),
            ("cache/hitt[*", IDS[0]),
            ("*rocmm*", IDS[4]),
            ("cache/hit[backend=*,dtype=float46]", IDS[1]),
        ),
        ("cache/hit[backend=cuda,dtype=float64]", IDS[2]),
    ],
)
def test_a_glob_without_a_case_has_the_nearest_id(pattern: str, near: str) -> None:
    assert unmatched([pattern, "top*"], CASES) == [
        f"no case matches '{pattern}': ids look like '{near}'"
    ]


def test_thousands_of_globs_on_thousands_of_ids_take_seconds() -> None:
    names = [
        f"ops/function[backend=cpu,op=name{number},dtype={dtype}]"
        for number in range(3_000)
        for dtype in ("float32", "int64")
    ]
    ids, begin = Ids(names), time.process_time()
    assert [
        ids.matching(f"ops/*[backend=*,op=name{number},*int64]") for number in range(3_000)
    ] == [[name] for name in names[1::2]]
    assert [ids.nearest(f"*op=nane{number},*int64]") for number in range(100)] == names[1:200:2]
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("seed", range(20))
def test_an_index_of_ids_changes_no_match(seed: int) -> None:
    draw, pieces = (
        random.Random(seed),
        ["*", "?", "a", "ab", "b", ",", "=", "[", "]", "_", ".", "-"],
    )
    names = ["".join(draw.choices(pieces[2:], k=draw.randrange(1, 7))) for _ in range(200)]
    patterns = ["".join(draw.choices(pieces, k=draw.randrange(1, 5))) for _ in range(200)]
    matching = [Ids(names).matching(pattern) for pattern in patterns]
    assert matching == [list(filter(glob(pattern).fullmatch, names)) for pattern in patterns]
    assert sum(map(len, matching)) > 500


def test_several_globs_or_backends_mean_any_and_both_mean_both() -> None:
    assert chosen(select=["top*", "cache/hit-*"]) == [IDS[3], IDS[4], IDS[5]]
    assert chosen(backend=["cuda", "rocm"]) == [IDS[2], IDS[4]]
    assert chosen(select=["cache/*"], backend=["cuda", "rocm"]) == [IDS[2]]


@pytest.mark.parametrize(
    ("globs", "numbers"),
    [
        *(
            (["!top*"], [0, 1, 2, 3]),
            (["!*"], []),
            (["!top*", "!*float??]"], [3]),
            (["cache/*", "!*float32]"], [1, 3]),
        ),
        *(
            (["!cache/*", "cache/hit[*"], []),
            (["top*", "cache/hit-*", f"!{IDS[3]}", "!nothing"], [4, 5]),
            (["!!top*"], list(range(6))),
        ),
    ],
)
def test_a_glob_after_an_exclamation_mark_takes_cases_out(
    globs: list[str], numbers: list[int]
) -> None:
    assert chosen(select=globs) == [IDS[number] for number in numbers]
    assert chosen(select=globs, backend=["cuda"]) == [
        IDS[number] for number in numbers if number == 2
    ]
    hints = {
        "!nothing": f"no case matches 'nothing': ids look like '{IDS[0]}'",
        "!!top*": f"no case matches '!top*': ids look like '{IDS[4]}'",
    }
    assert unmatched(globs, CASES) == [hints[glob] for glob in globs if glob in hints]


def test_a_glob_for_shipped_specs_that_were_not_read_names_their_folder() -> None:
    (hint,) = unmatched(["operators/opinfo-functions[*"], CASES)
    assert "the shipped specs have 'operators', and were not read: name /" in hint
    assert hint.endswith("/specs")


def test_an_unknown_backend_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"^unknown backend 'cdua' \(did you mean 'cuda'\?\)$"):
        chosen(backend=["cpu", "cdua"])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_share_all_cases_without_overlap(count: int) -> None:
    """They take about the same time, also on a machine that lacks a backend, and whatever the order
    of the cases is.
    """
    random_numbers = random.Random(7)
    cases = [
        made(f"area/spec{number}[backend={backend}]")
        for number in range(100)
        for backend in ("cpu", "cuda")
    ]
    seconds = {found.id: random_numbers.lognormvariate(0, 1) for found in cases}
    shards, loads = shards_of(cases, seconds, count)
    assert (shards.keys(), set(shards.values())) == (seconds.keys(), set(range(1, count + 1)))
    for backend in ("cpu", "cuda", "c"):
        taken = [0.0] * count
        for case_id, number in shards.items():
            taken[number - 1] += seconds[case_id] if f"[backend={backend}" in case_id else 0
        assert max(taken) < 1.03 * sum(taken) / count
    assert loads == pytest.approx(taken, abs=0.05)
    assert shards_of(random_numbers.sample(cases, 200), seconds, count) == (shards, loads)


@pytest.mark.parametrize(
    ("seconds", "loads"),
    [
        ({}, [2, 2, 1]),
        ({"a/x[backend=cpu]": 7.0}, [14, 14, 7]),
        ({"a/x[backend=cpu]": 1.0, "a/y[backend=cuda]": 3.0, "b/x[backend=cpu]": 9.0}, [9, 9, 6]),
    ],
)
def test_a_case_without_seconds_counts_as_its_area_or_else_as_all(
    seconds: dict[str, float], loads: list[float]
) -> None:
    ids = [
        "a/x[backend=cpu]",
        "a/y[backend=cuda]",
        "a/z[backend=rocm]",
        "b/x[backend=cpu]",
        "b/y[backend=rocm]",
    ]
    cases = [dataclasses.replace(made(case_id), area=case_id[0]) for case_id in ids]
    assert sorted(shards_of(cases, seconds, 3)[1], reverse=True) == loads
    assert shards_of([], seconds, 2) == ({}, [0, 0])


@pytest.mark.parametrize(
    "text",
    ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2", "1/-2", " 1/2", "1/2 ", "1.0/2", "٢/٣"],
)
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError, match="is not a shard: write I/N"):
        read_shard(text)
