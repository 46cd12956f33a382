"""What warming leaves in a process: nothing that the code, the numbers or the options of a later
compile could tell.

Each process of these tests is a Python of its own; what it compiles afterwards is written down and
never built, which costs no compiler.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import environment, import_torch
from torch_conformance.execute.spawn import environment_for
from torch_conformance.plan.schedule import Environment

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

import_torch()

from torch_conformance.worker.process import warming
from torch_conformance.worker.torch_compat import imports, torch_state

BEGIN = """\
import contextlib, itertools, json, os, sys, threading, types, warnings
warnings.simplefilter("ignore")
from torch_conformance.worker.process import warming, zygote
from torch_conformance.worker.torch_compat import imports, torch_state

def threads():
    return len(os.listdir("/proc/self/task"))

def options():
    from torch.utils._config_module import ConfigModule
    modules = [(name, module) for name, module in list(sys.modules.items()) if issubclass(type(module), ConfigModule)]
    found = {f"{module}.{name}": value for module, config in modules for name, value in config.get_config_copy().items()}
    return {name: repr(sorted(map(repr, value)) if isinstance(value, set | frozenset) else value) for name, value in found.items()}

def numbered():
    found = {}
    for owner, name, value in warming._counters():
        path = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
        found[f"{path}.{name}"] = repr(value)
    return found
"""  # noqa: E501 - text that is read by its lines

LOOK = """\
NAMES = set(vars(warming))
zygote.import_torch(); zygote.warm(["cpu"])
import torch

def settled():
    torch.set_num_threads(2)
    seen = []
    sin = torch.sin
    torch.sin = lambda *arguments: (seen.append(torch.get_num_threads()), sin(*arguments))[1]
    imports.settle_math.cache_clear()
    imports.settle_math()
    imports.set_threads(2)
    return {"seen": seen, "after": torch.get_num_threads()}

from torch._dynamo import convert_frame, utils
from torch._inductor.codecache import PyCodeCache
from torch.compiler._cache import CacheArtifactManager
from torch._subclasses.fake_tensor import FakeTensorMode
print(json.dumps({
    "counters": torch_state.counters(),
    "metrics": {name: value for name, value in torch_state.metrics().items() if value},
    "remote": torch_state.remote_caches(),
    "modules": len(PyCodeCache.modules) + len(PyCodeCache.linemaps),
    "imported": [name for name in sys.modules if torch_state._GENERATED.match(name)],
    "frames": [convert_frame.FRAME_COUNTER, len(convert_frame.FRAME_COMPILE_COUNTER)],
    "code": len(convert_frame.input_codes.seen) + len(convert_frame.output_codes.seen),
    "told": len(utils._compilation_metrics),
    "artifacts": len(CacheArtifactManager._new_cache_artifacts) + len(CacheArtifactManager._seen_artifacts),
    "fake": len(FakeTensorMode.cache),
    "names": [name for name in vars(warming) if name.startswith("__") and name not in NAMES],
    "threads": threads(),
    "danger": zygote.danger(),
    "folder": sorted(os.listdir(os.environ["TMPDIR"])),
    "variables": {name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")},
    "numbered": numbered(),
    "options": options(),
    "settings": [torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.get_num_threads(), torch.get_float32_matmul_precision()],
    "settled": settled(),
}))
"""  # noqa: E501 - text that is read by its lines


def python(folder: Path, *parts: str, **variables: str) -> Any:
    """Run a Python of its own, with the variables of a template, and return what it printed
    last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        **environment(PYTHONHASHSEED="0"),
        **environment_for(Environment(), 1, folder),
        **variables,
    }
    command = [sys.executable, "-c", "\n".join([BEGIN, *parts])]
    done = subprocess.run(
        command, env=wanted, cwd="/", capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what a warm process says of itself."""
    return python(tmp_path_factory.mktemp("warm"), LOOK)


# -- what is left ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "counters",
        "metrics",
        "remote",
        "imported",
        "modules",
        "code",
        "told",
        "artifacts",
        "fake",
        "names",
        "danger",
    ],
)
def test_nothing_is_left(name: str, warm: Any) -> None:
    assert not warm[name]


def test_the_first_frame_of_a_case_is_the_first(warm: Any) -> None:
    assert warm["frames"] == [0, 0]


def test_no_thread_and_no_folder_are_left(warm: Any) -> None:
    assert warm["threads"] == 1
    # torch's own precompiled headers lie there, where it makes some; nothing else
    assert [name for name in warm["folder"] if not name.startswith("torchinductor_")] == []
    assert all("warm" in path for path in warm["variables"].values())


def test_every_number_begins_anew(warm: Any) -> None:
    counted = warm["numbered"]
    assert counted["torch._functorch.aot_autograd.AOT_COUNTER"] == "count(0)"
    assert {path for path, value in counted.items() if value not in ("0", "count(0)")} == {
        "torch._dynamo.logging._step_counter"
    }
    assert counted["torch._dynamo.logging._step_counter"] == "count(1)"


# -- drivers ---------------------------------------------------------------------------------------

STUB = """\
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int called(const char *name, int answer) {
    int file = open(getenv("STUB_CALLS"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    write(file, name, strlen(name));
    write(file, "\\n", 1);
    close(file);
    return answer;
}
#define REFUSES(name) int name() { return called(#name, 100); }
REFUSES(cuInit) REFUSES(cuGetProcAddress) REFUSES(cuGetProcAddress_v2) REFUSES(cuGetExportTable) REFUSES(cuDeviceGetCount)
REFUSES(cuDeviceGet) REFUSES(cuCtxGetCurrent) REFUSES(cuDevicePrimaryCtxGetState) REFUSES(cuGetErrorString)
REFUSES(nvmlInit) REFUSES(nvmlInit_v2) REFUSES(nvmlDeviceGetCount_v2)
int cuDriverGetVersion(int *version) { *version = 13000; return called("cuDriverGetVersion", 0); }
"""  # noqa: E501 - text that is read by its lines
"""A driver without devices that writes down each call."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = import_torch()
    if torch.version.cuda is None:
        pytest.skip("this torch is not built for CUDA: there is no driver that it could ask")
    if (compiler := shutil.which("gcc")) is None:
        pytest.skip("no gcc: the driver that counts its calls cannot be built")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "stub.c").write_text(STUB)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-w", "-o", folder / name, folder / "stub.c"],
            check=True,
            timeout=240,
        )
    return folder


def calls(driver: Path, folder: Path, *parts: str, **variables: str) -> list[str]:
    """Return which functions of the driver a Python of its own has called."""
    log = folder / "calls"
    path = os.pathsep.join(filter(None, [str(driver), os.environ.get("LD_LIBRARY_PATH")]))
    python(
        folder,
        *parts,
        "print(json.dumps(None))",
        STUB_CALLS=str(log),
        LD_LIBRARY_PATH=path,
        **variables,
    )
    return log.read_text().split() if log.exists() else []


def test_warming_for_the_cpu_asks_no_driver(driver: Path, tmp_path: Path) -> None:
    wanted = textwrap.dedent("""\
        zygote.import_torch(); zygote.warm(["cpu"])
        assert zygote.danger() == "", zygote.danger()
        pid = os.fork()
        if not pid:
            import torch
            import torch_conformance.worker.case.run_case
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """)
    assert calls(driver, tmp_path, wanted) == []


def test_only_a_module_after_which_forks_are_safe_is_imported_ahead(tmp_path: Path) -> None:
    modules = {
        "of_safe": "",
        "of_thread": "import threading, time; threading.Thread(target=time.sleep, args=(60,), "
        "daemon=True).start()",
        "of_raising": "raise SystemExit('no licence')",
        "of_dying": "import os; os.kill(os.getpid(), 11)",
        "of_hanging": "import time; time.sleep(600)",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    ahead = (
        f"sys.path.append({str(tmp_path)!r}); "
        "imports._SECONDS = 1; zygote.import_torch(); "
        f"zygote.warm([f'module:{{name}}' for name in {list(modules)}])"
    )
    assert python(
        tmp_path,
        ahead,
        "print(json.dumps([zygote.danger(), *(name for name in sys.modules if name[:3] == "
        "'of_')]))",
    ) == [
        "",
        "of_safe",
    ]


def test_the_math_library_is_settled_with_one_thread_and_the_threads_are_given_back(
    warm: Any,
) -> None:
    """It is settled once more, last of all that the process says of itself."""
    assert warm["settled"] == {"seen": [1, 1], "after": 2}


# -- files: whole ones of a warm-up, and none of a graph that would spare the next zygote a compile

Zygote = Callable[..., Any]


@pytest.fixture
def zygote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zygote:
    """Return a function that makes the files of a zygote, whose own folders lie below one of its
    name.
    """
    (tmp_path / "kept").mkdir()
    keys: list[str] = []
    monkeypatch.setattr(warming, "_key", lambda: keys[-1])

    def start(name: str, key: str = "cpu") -> Any:
        keys.append(key)
        folders = {part: str(tmp_path / name / part) for part in ("cache", "headers")}
        monkeypatch.setattr(torch_state, "built_by_warm_up", lambda: folders)
        return warming.WarmFiles(str(tmp_path / "kept"))

    return start


def build(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_next_zygote_has_what_the_first_built(zygote: Zygote, tmp_path: Path) -> None:
    first = zygote("first")
    first.restore()
    build(
        tmp_path / "first",
        "cache/ab/isa.so",
        "headers/h.gch",
        "cache/fxgraph/a",
        "cache/aotautograd/b",
        "cache/locks/c",
        "cache/d.lock",
    )
    first.keep()
    zygote("second").restore()
    assert below(tmp_path / "second") == ["cache/ab/isa.so", "headers/h.gch"]


def test_a_zygote_of_another_compiler_has_files_of_its_own(zygote: Zygote, tmp_path: Path) -> None:
    build(tmp_path / "first", "cache/isa.so")
    zygote("first", "other").keep()
    zygote("second", "cpu").restore()
    assert below(tmp_path / "second") == []


def test_of_two_that_start_at_a_time_one_keeps_its_files(zygote: Zygote, tmp_path: Path) -> None:
    first = zygote("first")
    build(tmp_path / "second", "cache/second")
    zygote("second").keep()
    zygote("first")
    build(tmp_path / "first", "cache/first")
    first.keep()
    assert below(tmp_path / "kept") == ["cpu/cache/second"]


def test_those_that_were_not_used_for_longest_go(zygote: Zygote, tmp_path: Path) -> None:
    build(tmp_path / "all", "cache/isa.so")
    for number in range(warming._MOST_KEPT):
        zygote("all", f"kind{number}").keep()
        os.utime(tmp_path / "kept" / f"kind{number}", (number, number))
    zygote("again", "kind0").restore()
    zygote("all", "new").keep()
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {"kind0", "new", *(f"kind{number}" for number in range(2, warming._MOST_KEPT))}


def test_without_a_folder_nothing_is_kept(zygote: Zygote, tmp_path: Path) -> None:
    zygote("first")
    files = warming.WarmFiles(None)
    files.restore()
    files.keep()
    assert below(tmp_path) == []


def test_a_probe_of_vector_instructions_that_succeeded_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import cpu_vec_isa

    asked: list[str] = []
    monkeypatch.setattr(
        cpu_vec_isa.VecISA, "check_build", lambda isa, code: asked.append(str(isa)) or isa.works
    )
    folder = warming.WarmFiles(str(tmp_path)).probes()
    assert folder is not None
    imports.share_probes(folder)
    for _ in range(2):
        for isa in (Isa("avx512 vnni", works=True), Isa("avx2", works=False)):
            assert cpu_vec_isa.VecISA.check_build(isa, "code") is isa.works
    assert asked == ["avx512 vnni", "avx2", "avx2"]


class Isa:
    def __init__(self, name: str, *, works: bool) -> None:
        self.name, self.works = name, works

    def __str__(self) -> str:
        return self.name
