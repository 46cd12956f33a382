"""Names are read from source as torch itself would find them, and looked up with a reason or a
suggestion.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.conftest import GOOD
from tests.fakes import PACKAGE
from tools.generate_names import list_text, main
from torch_conformance.language import torch_names
from torch_conformance.language.load import inspect_specs
from torch_conformance.language.read import python_source
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.language.torch_names import (
    COUNTER,
    LIST,
    METRIC,
    OPERATOR,
    Names,
    NameTables,
    committed_tables,
    matches,
    scan,
)
from torch_conformance.machine.installed_torch import InstalledTorch, installed_torch, torch_at
from torch_conformance.model.diagnostics import Severity, UsageError

INDUCTOR, DYNAMO = "config", "dynamo_config"
MINORS = ("2.11", "2.12", "2.13", "2.14")
IMPORT = "from torch._dynamo.utils import counters\n"


def make_torch(folder: Path, version: str = "2.13.0", **files: str) -> Path:
    """Write a torch of a few files; a key such as ``_inductor__config`` is a path without its
    ending.
    """
    given = {name.replace("__", "/") + ".py": text for name, text in files.items()}
    every = dict.fromkeys(
        (
            "_inductor/config.py",
            "_dynamo/config.py",
            "_functorch/config.py",
            "_inductor/metrics.py",
        ),
        "",
    )
    for path, text in {**every, "version.py": f"__version__ = '{version}'\n", **given}.items():
        file = folder / "torch" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "torch"


def counters_of(folder: Path, **files: str) -> dict[str, tuple[set[str], tuple[str, ...]]]:
    names = scan(make_torch(folder, **files))
    pairs = [counter.split(".", 1) for counter in names.names[COUNTER]]
    spaces = {*names.patterns, *(space for space, _ in pairs)}
    return {
        space: ({name for own, name in pairs if own == space}, names.patterns.get(space, ()))
        for space in spaces
    }


# Bad sources.


def test_a_folder_without_torch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        scan(tmp_path)


# Options.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a = 1\nb: int = 2\nc, d = 1, 2\n", {"a", "b", "c", "d"}, id="assignments"),
        pytest.param("a: int\n", set(), id="an annotation without a value"),
        pytest.param("_a = 1\n__b__ = 2\n", {"_a"}, id="private but not dunder"),
        pytest.param(
            "import os\nfrom x import Y\ndef f(): z = 1\ng = lambda: 1\n",
            set(),
            id="functions and imports",
        ),
        pytest.param(
            "A = Literal['x']\nB: TypeAlias = int\nC = typing.Callable[[], int]\n",
            set(),
            id="types",
        ),
        pytest.param("if TYPE_CHECKING:\n    a = 1\nelse:\n    b = 1\n", {"b"}, id="type checking"),
        pytest.param(
            "if is_fbcode():\n    a = 1\nelse:\n    b = 1\n", {"b"}, id="the public torch"
        ),
        pytest.param(
            "if sys.platform == 'x':\n    a = 1\nelif y:\n    b = 1\nelse:\n    c = 1\n",
            {"a", "b", "c"},
            id="every branch",
        ),
        pytest.param(
            "try:\n    a = 1\nexcept E:\n    b = 1\nelse:\n    c = 1\nfinally:\n    d = 1\n",
            set("abcd"),
            id="try",
        ),
        pytest.param("with x:\n    a = 1\nfor i in y:\n    b = 1\n", {"a", "b"}, id="with and for"),
        pytest.param(
            "class g:\n    a = 1\n    class h:\n        b: int = 1\n        def f(self): pass\n",
            {"g.a", "g.h.b"},
            id="groups",
        ),
        pytest.param(
            "class p:\n    a = 1\n    b = 1\n    _c = 1\n@inherit_fields_from(p)\nclass "
            "q(p):\n    b = 2\n    d = 2\n",
            {"p.a", "p.b", "p._c", "q.a", "q.b", "q.d"},
            id="inherited options",
        ),
        pytest.param(
            "class p:\n    a = 1\n    b = 1\n    _c = 1\n@alias_fields_from(p)\nclass "
            "q:\n    b = 2\n    d = 2\n",
            {"p.a", "p.b", "p._c", "q.a", "q.b", "q.d"},
            id="options that are aliases",
        ),
        pytest.param(
            "class p:\n    a = 1\n@decorated\n@documented('p')\n@a.b(p)\nclass q:\n    b = 1\n",
            {"p.a", "q.a", "q.b"},
            id="other decorators",
        ),
        pytest.param(
            "class p:\n    a = 1\nclass q(p):\n    b = 1\n",
            {"p.a", "q.b"},
            id="a base alone gives nothing",
        ),
    ],
)
def test_options(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert set(scan(make_torch(tmp_path, _inductor__config=text)).names["config"]) == expected


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("a: bool = True", ("bool",)),
        ("a: bool | None = None", ("bool", "null")),
        ("a: Optional[int] = 3", ("int", "null")),
        ("a: Union[bool, Literal['x', 'y']] = True", ('"x"', '"y"', "bool")),
        ("a: typing.Literal[0, 1] = int(os.environ['A'])", ("0", "1")),
        ("a: 'float' = 0.5", ("float",)),
        ("a: list[str] = []", ("list",)),
        ("a: dict[str, Any] | None = None", ("null", "map")),
        ("a: Callable[[int], int] | None = None", ()),
        ("a: Something = None", ()),
        ("a: bool = None", ("bool", "null")),
        ("a = False", ("bool",)),
        ("a = os.environ.get('A') == '1'", ("bool",)),
        ("a = not b", ("bool",)),
        ("a = -1", ("int",)),
        ("a = os.environ.get('A', 'b').upper()", ("str",)),
        ("a = None", ()),
        ("a = decide()", ()),
        ("a: str = Config(default='x')", ("str",)),
    ],
)
def test_what_an_option_takes_is_read_from_its_annotation_and_default(
    tmp_path: Path, statement: str, allowed: tuple[str, ...]
) -> None:
    assert (
        scan(make_torch(tmp_path, _inductor__config=statement + "\n")).types["config"].get("a", ())
        == allowed
    )


STRICT = """\
numerics: Literal["default", "strict"] = os.environ.get("TORCHINDUCTOR_NUMERICS", "default")
casts: bool = os.environ.get("CASTS") == "1"
class eager_numerics:
    disable_ftz: bool = False
if numerics == "strict":
    casts = True
    eager_numerics.disable_ftz = True
size = 1
size = size + 1
wide = size > 1 or decide(eager_numerics.disable_ftz)
decide(size)
"""
"""What a torch after 2.14 has announced for numerics, and values that are made of others."""


def test_an_option_that_decides_others_at_import_is_known_with_them(tmp_path: Path) -> None:
    tables = tables_for(tmp_path, "2.16.0", _inductor__config=STRICT)
    assert {
        name: tables.decided_at_import(name)
        for name in ("numerics", "casts", "eager_numerics.disable_ftz", "size", "wide", "nothing")
    } == {
        "numerics": "casts, eager_numerics.disable_ftz",
        "casts": "",
        "eager_numerics.disable_ftz": "wide",
        "size": "wide",
        "wide": "",
        "nothing": "",
    }


@pytest.mark.parametrize(
    "setting", ["config: {numerics: strict}", "compile: {options: {numerics: strict}}"]
)
def test_a_spec_that_sets_such_an_option_gets_a_warning(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(f"{GOOD}{setting}\n")
    torch = torch_at(make_torch(tmp_path, "2.16.0", _inductor__config=STRICT))
    inspection = inspect_specs([SpecPath(path=path, root=tmp_path)], torch=torch)
    (warning,) = inspection.valid().problems
    assert (warning.code, warning.severity) == ("option-read-at-import", Severity.WARNING)
    assert dict(warning.arguments) == {
        "kind": "config",
        "name": "numerics",
        "others": "casts, eager_numerics.disable_ftz",
    }
    read_late = torch_at(
        make_torch(tmp_path / "late", "2.14.1", _inductor__config="numerics = 'x'\n")
    )
    assert not inspect_specs([SpecPath(path=path, root=tmp_path)], torch=read_late).problems


# Counters.


@pytest.mark.parametrize(
    ("text", "names", "patterns"),
    [
        pytest.param('counters["n"]["a.b"] += 1\n', {"a.b"}, (), id="constant"),
        pytest.param(
            'def f():\n    counters["n"][\n        "a"\n    ] += 2\n',
            {"a"},
            (),
            id="over many lines",
        ),
        pytest.param('counters["n"]["a"] = 1\n', {"a"}, (), id="assigned"),
        pytest.param('x = counters["n"]["a"]\n', {"a"}, (), id="read"),
        pytest.param(
            'def f(x):\n    k = "a" if x else "b"\n    counters["n"][k] += 1\n',
            {"a", "b"},
            (),
            id="through a variable",
        ),
        pytest.param(
            'k = "a"\ndef f():\n    counters["n"][k] += 1\n',
            {"a"},
            (),
            id="through a module variable",
        ),
        pytest.param(
            's = "n"\ncounters[s]["a"] += 1\n', {"a"}, (), id="namespace through a variable"
        ),
        pytest.param(
            's = os.environ.get("X", "n")\ncounters[s]["a"] += 1\n',
            {"a"},
            (),
            id="default of the environment",
        ),
        pytest.param(
            'def f(x):\n    counters["n"][f"a.{x}_{1}"] += 1\n',
            set(),
            (r"a\..+_.+",),
            id="f-string",
        ),
        pytest.param(
            'counters["n"]["a_" + x.y.split(".")[0]] += 1\n', set(), (r"a_.+",), id="concatenation"
        ),
        pytest.param('def f(x):\n    counters["n"][x.y] += 1\n', set(), (".*",), id="open"),
        pytest.param(
            'for k in y:\n    counters["n"][k] += 1\n', set(), (".*",), id="loop variable"
        ),
        pytest.param(
            'k = "a"\ndef f():\n    for k in y:\n        counters["n"][k] += 1\n',
            set(),
            (".*",),
            id="hidden by a loop",
        ),
        pytest.param(
            'def f(k="d"):\n    counters["n"][k] += 1\nf()\nf("a")\nf(k="b")\n',
            {"a", "b", "d"},
            (),
            id="helper",
        ),
        pytest.param(
            'class C:\n    def f(self, k):\n        counters["n"][k] += 1\nC().f("a")\n',
            {"a"},
            (),
            id="method",
        ),
        pytest.param(
            'def f(*, k):\n    counters["n"][k] += 1\nf(k="a")\n', {"a"}, (), id="keyword only"
        ),
        pytest.param(
            'def f(k="a", m="b"):\n    counters["n"][k] += 1\nf()\n',
            {"a"},
            (),
            id="the right default",
        ),
        pytest.param(
            'def f(k):\n    counters["n"][k] += 1\nf(*x)\n',
            set(),
            (".*",),
            id="helper with unknown arguments",
        ),
        pytest.param(
            'def f(m, k="a"):\n    counters["n"][k] += 1\nf(*x)\n',
            {"a"},
            (".*",),
            id="more unknown arguments",
        ),
        pytest.param(
            'def f(k="a"):\n    counters["n"][k] += 1\nf(**x)\n',
            {"a"},
            (".*",),
            id="unknown keywords",
        ),
        pytest.param(
            'def f(k):\n    counters["n"][k] += 1\n', set(), (".*",), id="helper that nobody calls"
        ),
        pytest.param(
            'def f():\n    k = "a"\n    k = k + "b"\n    counters["n"][f"{k}"] += 1\n',
            None,
            None,
            id="a variable made of itself",
        ),
    ],
)
def test_counters(
    tmp_path: Path, text: str, names: set[str] | None, patterns: tuple[str, ...] | None
) -> None:
    found = counters_of(tmp_path, _inductor__counting=IMPORT + text)
    if names is None or patterns is None:
        assert "a" in found["n"][0]
    else:
        assert found == {"n": (names, patterns)}


@pytest.mark.parametrize(
    "text",
    [
        'from ..._dynamo.utils import counters\ncounters["n"]["a"] += 1\n',
        'from .utils import counters\ncounters["n"]["a"] += 1\n',
        'from torch._dynamo import utils\nutils.counters["n"]["a"] += 1\n',
        'import torch\ntorch._dynamo.utils.counters["n"]["a"] += 1\n',
        'def f():\n    from torch._dynamo.utils import counters\n    counters["n"]["a"] += 1\n',
    ],
)
def test_ways_to_get_at_the_counters(tmp_path: Path, text: str) -> None:
    assert counters_of(tmp_path, _dynamo__counting=text) == {"n": ({"a"}, ())}


def test_a_helper_called_in_another_file(tmp_path: Path) -> None:
    helper = (
        IMPORT
        + 'class E:\n    def bump(self, space="first"):\n        counters[space][self.text] += 1\n'
    )
    found = counters_of(tmp_path, _dynamo__helper=helper, fx__caller="e.bump()\ne.bump('second')\n")
    assert found == {"first": (set(), (".*",)), "second": (set(), (".*",))}


def test_unknown_namespace_is_reported(tmp_path: Path) -> None:
    root = make_torch(
        tmp_path, _dynamo__counting=IMPORT + 'for s in x:\n    counters[s]["a"] += 1\n'
    )
    assert scan(root).unresolved == ("_dynamo/counting.py:3",)


def test_a_pattern_is_anchored_and_spans_lines(tmp_path: Path) -> None:
    text = IMPORT + 'counters["n"][f"a.{x}"] += 1\ncounters["o"][x] += 1\n'
    patterns = scan(make_torch(tmp_path, _dynamo__counting=text)).patterns
    assert [matches(patterns, f"n.{name}") for name in ("a.b", "a.", "za.b", "axb")] == [
        True,
        False,
        False,
        False,
    ]
    assert matches(patterns, "o.first line\nsecond line.")


# Metrics.


def test_metrics(tmp_path: Path) -> None:
    text = (
        "import os\nnumber = 0\nreal: float = 0.0\nitems: list[int] = []\nother: dict[str, "
        "int] = {}\nflag = True\nname = 'x'\n"
        "def reset():\n    global number\n    number = 0\n    items.clear()\n    local = "
        "1\ndef another():\n    other.clear()\n"
    )
    assert set(scan(make_torch(tmp_path, _inductor__metrics=text)).names[METRIC]) == {
        "number",
        "real",
        "items",
    }


# The committed list.


def test_the_command_adds_a_torch_to_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_torch(
        tmp_path,
        "2.16.0a0",
        _inductor__config="fx_graph_cache: bool = True\nb = 1\n",
        _dynamo__counting=IMPORT + OPEN,
    )
    assert main([str(root), "-o", str(tmp_path / "list.json"), "--without-operators"]) == 0
    monkeypatch.setattr(torch_names, "LIST", tmp_path / "list.json")
    tables = committed_tables.__wrapped__()
    assert [*tables] == [*MINORS, "2.16"]
    assert tables["2.16"] == scan(root)
    assert {minor: tables[minor] for minor in MINORS} == committed_tables()


OPEN = "counters['n'][x] += 1\n"


def test_names_stand_in_spans_of_minors(tmp_path: Path) -> None:
    versions = {"2.9": "2.9.1", "2.10": "2.10.0", "2.11": "2.11.0"}
    entries = {
        of: [(METRIC, "", name) for name in names]
        for of, names in {"2.9": "abc", "2.10": "ab", "2.11": "acd"}.items()
    }
    rows = json.loads(list_text(versions, entries))["names"]
    assert rows == [
        ["metric", span, "", names]
        for span, names in [
            ("2.11-", ["c", "d"]),
            ("2.9", ["c"]),
            ("2.9-", ["a"]),
            ("2.9-2.10", ["b"]),
        ]
    ]


def test_the_list_is_short_and_in_its_canonical_form() -> None:
    text, tables = LIST.read_text(), committed_tables()
    assert text == list_text(
        {of: table.version for of, table in tables.items()},
        {of: table.entries for of, table in tables.items()},
    )
    assert len(text.splitlines()) < 1500
    assert max(map(len, text.splitlines())) <= 200


# Looking up with an installed torch.


def tables_for(folder: Path, version: str, **files: str) -> NameTables:
    return NameTables(torch_at(make_torch(folder, version, **files)))


def test_a_torch_of_another_machine_has_the_names_of_its_minor(tmp_path: Path) -> None:
    installed = InstalledTorch(
        version="2.12.1+cu130", minor="2.12", root=tmp_path / "absent", builds={}, git=""
    )
    assert NameTables(installed).lookup(INDUCTOR, "cudagraph_policy").is_installed
    assert (
        NameTables(installed).absence(INDUCTOR, "rocm.origami")
        == "config rocm.origami is not in torch 2.12, only in 2.13, 2.14"
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [(INDUCTOR, "rocm.origami"), (COUNTER, "inductor.fix_auto_functionalized_dtype_views")],
)
def test_a_name_of_another_version_is_known_but_not_here(
    tmp_path: Path, kind: str, name: str
) -> None:
    tables = tables_for(tmp_path, "2.11.0")
    found = tables.lookup(kind, name)
    assert (found.is_known, found.is_installed, found.versions, found.hints) == (
        True,
        False,
        ("2.13", "2.14"),
        {},
    )
    assert tables.absence(kind, name) == f"{kind} {name} is not in torch 2.11, only in 2.13, 2.14"


PATCHED = {
    "_inductor__config": "class triton:\n    patched_option = 1\n",
    "_inductor__metrics": "patched_metric = 0\n",
    "_dynamo__counting": IMPORT + 'counters["inductor"]["patched_counter"] += 1\n',
}
NEW = [
    (INDUCTOR, "triton.patched_option"),
    (METRIC, "patched_metric"),
    (COUNTER, "inductor.patched_counter"),
]
OLD = [
    (INDUCTOR, "fx_graph_cache"),
    (COUNTER, "inductor.fxgraph_cache_miss"),
    (COUNTER, "graph_break.x"),
]


@pytest.mark.parametrize(
    ("version", "which"),
    [
        ("2.13.0", ""),
        ("2.14.0a0+gitabc", ""),
        ("2.16.0.dev20261120+cpu", "newer than the newest tested, 2.14"),
        ("2.16.0a0+git1234567", "newer than the newest tested, 2.14"),
        ("2.10.1", "older than the oldest tested, 2.11"),
    ],
)
def test_a_name_is_looked_up_in_the_installed_source(
    tmp_path: Path, version: str, which: str
) -> None:
    tables = tables_for(tmp_path, version, **PATCHED)
    assert tables.untested == (
        which and f"torch {version} is {which}: names are checked only against its source"
    )
    for kind, name in NEW:
        found = tables.lookup(kind, name)
        assert (found.is_known, found.is_installed, found.versions, found.by_pattern) == (
            True,
            True,
            (),
            False,
        ), name
    for kind, name in OLD:
        found = tables.lookup(kind, name)
        assert (found.is_known, found.is_installed, found.versions) == (True, False, MINORS), name
    assert tables.value_problem(INDUCTOR, "triton.patched_option", "x") is not None, (
        "its values are those of the source"
    )


def test_what_was_read_of_a_source_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    torch = torch_at(make_torch(tmp_path, "2.16.0.dev20261120", **PATCHED))
    with patch.object(torch_names, "scan", wraps=scan) as scanned:
        first = torch_names.names_of_source(torch)
        assert torch_names.names_of_source(torch) == first
        assert scanned.call_count == 1
        make_torch(
            tmp_path, "2.16.0.dev20261120", **{**PATCHED, "_inductor__metrics": "another = 0\n"}
        )
        assert torch_names.names_of_source(torch).names[METRIC] == {"another"}


def test_an_operator_that_an_untested_torch_lacks_is_said(tmp_path: Path) -> None:
    database = (
        "op_db = [\n    UnaryUfuncInfo('abs', ref=np.abs),\n    make_signal_windows_opinfo(\n     "
        '   name="kept",\n    ),\n]\n'
    )
    tables = tables_for(tmp_path, "2.16.0", testing___internal__common_methods_invocations=database)
    assert [tables.absent_operator(op) for op in ("abs", "kept", "qr")] == [
        "",
        "",
        "operator qr is not in torch 2.16",
    ]
    assert tables_for(tmp_path / "other", "2.16.0").absent_operator("qr") == "", (
        "there is no database to read"
    )
    assert tables_for(tmp_path, "2.14.0").absent_operator("qr") == "", "the list says so"


OBJECT = {"compiler____init__": "class _PrecompileApi: ...\nprecompile = _PrecompileApi()\n"}
MODULE = {"compiler____init__": "", "compiler__precompile": "class Capture: ...\ndef load(): ...\n"}


@pytest.mark.parametrize(
    ("files", "path", "problem"),
    [
        (OBJECT, "torch.compiler.precompile", ""),
        (OBJECT, "torch.compiler.precompile.load", ""),  # only a worker can decide
        (MODULE, "torch.compiler.precompile", ""),
        (MODULE, "torch.compiler.precompile.load", ""),
        (MODULE, "torch.compiler.precompile.Capture", ""),
        (MODULE, "torch.compiler.precompile.lode", "load"),
    ],
)
def test_precompile_may_be_an_object_or_a_module(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    path: str,
    problem: str,
) -> None:
    """In torch 2.14 it is an object, in a later one a module."""
    make_torch(tmp_path, "2.16.0", **{"__init__": "", **files})
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = python_source.find_name(path, set())
    assert (dict(found.arguments)["near"] if found else "") == problem


def test_without_a_torch_a_known_name_counts_as_here() -> None:
    tables = NameTables(None)
    assert tables.lookup(INDUCTOR, "rocm.origami").is_installed
    assert not tables.lookup(INDUCTOR, "rocm.nothing").is_installed
    assert tables.absence(INDUCTOR, "rocm.origami") == ""


def test_an_argument_that_torch_compile_lacks_is_said(tmp_path: Path) -> None:
    tables = tables_for(tmp_path, "2.12.0")
    overload = (
        "@overload\ndef compile(\n    model: None = None,\n    *,\n    name: str = '',\n) -> int: "
        "...\n\n"
    )
    assert tables.installed is not None
    (tables.installed.root / "__init__.py").write_text(
        f"{overload}def compile(\n    model: int,\n    *,\n    disable: bool = False,\n) -> "
        "int:\n    pass\n"
    )
    assert (tables.absent_argument("disable"), tables.absent_argument("name")) == (
        "",
        "torch.compile of torch 2.12 has no argument name",
    )
    assert NameTables(None).absent_argument("name") == ""


# Suggestions.


@pytest.mark.parametrize(
    ("kind", "names", "hints"),
    [
        (
            COUNTER,
            "fxgraph_cache_mis fxgraph_cache_miss inductr.fxgraph_cache_miss "
            "inductr.fxgraph_cache_mis inductor.fxgraph_cache_mis",
            {"near": "inductor.fxgraph_cache_miss"},
        ),
        (COUNTER, "inductor.unique_graphs", {"near": "stats.unique_graphs"}),
        (COUNTER, "graph_breaks.reason", {"near": "graph_break.reason"}),
        (COUNTER, "graph_break", {"space": "graph_break"}),
        (COUNTER, "inductor.", {"space": "inductor"}),
        (COUNTER, "generated_kernel_count", {"metric": "generated_kernel_count"}),
        (COUNTER, "frames.zzz", {"in_space": "frames", "known": "ok, total"}),
        (METRIC, "generated_kernels_count", {"near": "generated_kernel_count"}),
        (INDUCTOR, "triton.cudagraph cudagraphs", {"near": "triton.cudagraphs"}),
        (INDUCTOR, "torch._inductor.config.fx_graph_cache", {"near": "fx_graph_cache"}),
        (INDUCTOR, "suppress_errors", {"word": "suppress_errors", "home": "dynamo_config"}),
        (DYNAMO, "supress_errors", {"near": "suppress_errors"}),
        (INDUCTOR, "zzzzzzzzzzzz", {}),
    ],
)
def test_hints(kind: str, names: str, hints: dict[str, str]) -> None:
    for name in names.split():
        assert {
            word: value
            for word, value in NameTables(None).lookup(kind, name).hints.items()
            if value
        } == hints, name


# Against the installed torch.


@pytest.fixture(scope="module")
def torch_here() -> InstalledTorch:
    installed = installed_torch()
    if installed is None:
        pytest.skip("no torch is installed")
    return installed


@pytest.fixture(scope="module")
def scanned(torch_here: InstalledTorch) -> Names:
    return scan(torch_here.root)


def test_the_list_of_the_installed_torch_is_fresh(
    torch_here: InstalledTorch, scanned: Names
) -> None:
    if torch_here.version.partition("+")[0] != getattr(
        committed_tables().get(torch_here.minor), "version", ""
    ):
        pytest.skip(f"the list does not have torch {torch_here.version}")
    assert scanned.unresolved == ()
    listed = {
        entry for entry in committed_tables()[torch_here.minor].entries if entry[0] != OPERATOR
    }
    assert scanned.entries == listed, f"run: python -m tools.generate_names {torch_here.root}"


def test_the_counters_written_plainly_are_all_listed(
    torch_here: InstalledTorch, scanned: Names
) -> None:
    """A second reading by text alone, so that a slip of the first is seen."""
    plain = re.compile(
        r"counters\[\s*[\"'](\w+)[\"']\s*\]\[\s*[\"']([^\"']+)[\"']\s*\]\s*(?:\+=|=[^=])"
    )
    files = (
        file
        for folder in ("_dynamo", "_inductor", "_functorch")
        for file in (torch_here.root / folder).rglob("*.py")
    )
    written = {
        ".".join(match.groups())
        for file in files
        for match in plain.finditer(file.read_text("utf-8"))
    }
    assert len(written) > 100
    assert written - scanned.names[COUNTER] == set()


# What knows a version.


def test_only_torch_compat_knows_versions_and_its_branches_say_how_long_they_are_needed() -> None:
    texts = {file: file.read_text() for file in PACKAGE.rglob("*.py")}
    until = {file: re.findall(r"until torch (\d+\.\d+)", text) for file, text in texts.items()}
    elsewhere = [
        file for file, minors in until.items() if minors and file.parent.name != "torch_compat"
    ]
    compared = [
        file
        for file, text in texts.items()
        if re.search(r"__version__ *[<>]|[<>]=? *torch\.(?:__)?version|TorchVersion", text)
    ]
    assert elsewhere == compared == []
    needed = {minor for minors in until.values() for minor in minors}
    assert needed, "no branch says it"
    assert needed < {*committed_tables()}, (
        "a branch is for a torch that is no longer supported: remove it"
    )
