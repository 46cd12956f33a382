"""What warming leaves in a process: nothing that the code, the numbers or the options of a later compile could tell.

Each process of these tests is a Python of its own; what it compiles afterwards is written down and never built, which costs no compiler.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from runner.execute.spawn import environment_for
from runner.plan.schedule import Environment
from tests.fakes import environment, import_torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

BEGIN = """\
import contextlib, itertools, json, os, sys, threading, types, warnings
warnings.simplefilter("ignore")
from runner.worker.process import warming, zygote
from runner.worker.torch_compat import imports, torch_state

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
"""

LOOK = """\
NAMES = set(vars(warming))
zygote.warm(["cpu"])
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
"""


def python(folder: Path, *parts: str, **variables: str) -> Any:
    """Run a Python of its own, with the variables of a template, and return what it printed last."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {**environment(PYTHONHASHSEED="0"), **environment_for(Environment(), 1, folder), **variables}
    command = [sys.executable, "-c", "\n".join([BEGIN, *parts])]
    done = subprocess.run(command, env=wanted, cwd="/", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what a warm process says of itself."""
    return python(tmp_path_factory.mktemp("warm"), LOOK)


# -- what is left ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["counters", "metrics", "remote", "imported", "modules", "code", "told", "artifacts", "fake", "names", "danger"]
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
    assert {path for path, value in counted.items() if value not in ("0", "count(0)")} == {"torch._dynamo.logging._step_counter"}
    assert counted["torch._dynamo.logging._step_counter"] == "count(1)"


# -- drivers --------------------------------------------------------------------------------------------------------

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
"""
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
        subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", folder / name, folder / "stub.c"], check=True, timeout=240)
    return folder


def calls(driver: Path, folder: Path, *parts: str, **variables: str) -> list[str]:
    """Return which functions of the driver a Python of its own has called."""
    log = folder / "calls"
    path = os.pathsep.join(filter(None, [str(driver), os.environ.get("LD_LIBRARY_PATH")]))
    python(folder, *parts, "print(json.dumps(None))", STUB_CALLS=str(log), LD_LIBRARY_PATH=path, **variables)
    return log.read_text().split() if log.exists() else []


def test_warming_for_the_cpu_asks_no_driver(driver: Path, tmp_path: Path) -> None:
    wanted = textwrap.dedent("""\
        zygote.warm(["cpu"])
        assert zygote.danger() == "", zygote.danger()
        pid = os.fork()
        if not pid:
            import torch
            import runner.worker.case.run_case
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """)
    assert calls(driver, tmp_path, wanted) == []


def test_the_math_library_is_settled_with_one_thread_and_the_threads_are_given_back(warm: Any) -> None:
    """It is settled once more, last of all that the process says of itself."""
    assert warm["settled"] == {"seen": [1, 1], "after": 2}
