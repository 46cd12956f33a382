"""What every test may ask for."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests import clusters, prestart
from tests.fakes import ROOT, import_torch, inspected_once
from tests.fences import write_site
from tests.timeouts import pytest_timeout_cancel_timer, pytest_timeout_set_timer  # noqa: F401 - hooks of pytest-timeout
from torch_conformance.execute.spawn import ProcessStarter
from torch_conformance.language import backends, waivers
from torch_conformance.language import load as load_module
from torch_conformance.language.load import Suite, load
from torch_conformance.language.read.document import BACKENDS, WAIVERS
from torch_conformance.language.torch_names import NameTables
from torch_conformance.machine.installed_torch import InstalledTorch
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, shown_path
from torch_conformance.model.document import Document

GOOD = """\
summary: A product of two matrices is right
backends: [cpu]
function: |
  def fn(x, y):
      return x @ y
inputs: [{rand: [4, 4]}, {rand: [4, 4]}]
expect: [{close: {to: eager}}]
"""


def _ignore_here(_: int, __: FrameType | None) -> None:
    """Do nothing.

    Unlike ``SIG_IGN``, a handler is not inherited by the programs that a test starts: they get the
    default.
    """


def _usual_signals() -> None:
    """Give the programs that tests start the usual signals: where tests run in the background of a
    script, SIGINT is ignored.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        # Python ignores these two itself
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore_here)


_usual_signals()

# Programs that tests start would compile the whole project each time, and torch too where pip has
# not compiled it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# On GitHub the programs that tests start would write annotations, and into the summary of the job.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
    os.environ.pop(_name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="write what the program says now into tests/specs/invalid/*.txt",
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # a quarter of the time of a collection of tests: nothing of it is garbage
    config.add_cleanup(prestart.begin())


LONGEST_FIRST = (
    "suite corpus profiles archive_tampering planted_faults other_compilers words false_passes "
    "recomputed_numbers run broken_runs hostile_workers services flaky_runs faults merged_runs "
    "hangs tampering working_folder waived_runs warming bench worker_session measures junit"
).split()
"""The files of tests that take long, without ``test_`` and ``.py``: where several workers share the
tests, these are begun first.

The second and third do not compile: the runs after them find what the first run built.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("nightly"):
            if not mark.kwargs.get("reason"):
                raise pytest.UsageError(
                    f"{item.nodeid}: give a reason: @pytest.mark.nightly(reason=...)"
                )
    if hasattr(config, "workerinput"):
        places = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: (places.get(item.path.stem, len(places)), item.path.parts))


def pytest_collection_finish() -> None:
    """Switch the garbage collector on again; it need not read the tests and the imported modules
    each time.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker more than there are cores: some tests wait for processes, sockets and time
    limits.
    """
    return len(os.sched_getaffinity(0)) + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, in the order of the items, so that the runs that the tests of a
    file look at are made once.
    """
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "load":  # another one was asked for
        return None
    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture(autouse=True)
def no_early_zygotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs of this process start a zygote only when a case needs it: most have a fake
    executor.
    """
    monkeypatch.setattr(ProcessStarter, "early", lambda jobs: contextlib.nullcontext())


@pytest.fixture(scope="session", autouse=True)
def own_kept_folder(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Keep what runs keep away from the user's own folder, in one folder of all workers: a run
    builds less where another one has.
    """
    base = tmp_path_factory.getbasetemp()
    kept = (base.parent if hasattr(request.config, "workerinput") else base) / "kept"
    kept.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CONFORMANCE_CACHE", str(kept))
        yield


@pytest.fixture(scope="session", autouse=True)
def shipped_files_once() -> Iterator[None]:
    """Let this process read the shipped specs, backends and waivers once, and check these backends
    once for the installed torch: that is most of the time of reading a small spec.
    """
    documents: dict[Path, Document] = {}
    for name, kind in (("backends", BACKENDS), ("waivers", WAIVERS)):
        document = backends.read_named(path := ROOT / "specs" / f"{name}.yaml", kind, [])
        assert document is not None
        documents[path] = document
    read, check = backends.read_named, load_module.check_backends
    shipped = documents[ROOT / "specs" / "backends.yaml"].digest
    right: list[InstalledTorch | None] = []
    """The torches for which the shipped backends have no problem."""

    def read_named(file: Path, kind: Any, problems: list[Diagnostic]) -> Document | None:
        if file in documents:
            return replace(documents[file], file=shown_path(file))
        return read(file, kind, problems)

    def check_backends(found: backends.Backends, names: NameTables) -> list[Diagnostic]:
        others = (one.document.digest != shipped for one in found.by_name.values())
        if found.broken or any(others):
            return list(check(found, names))
        problems = [] if names.installed in right else list(check(found, names))
        if not problems:
            right.append(names.installed)
        return problems

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "read_named", read_named)
        patch.setattr(waivers, "read_named", read_named)
        patch.setattr(load_module, "check_backends", check_backends)
        patch.setattr(load_module, "inspect_specs", inspected_once)
        yield


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[clusters.Cluster]:
    with clusters.cluster_in(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of every page, each page in a folder of its own."""
    return write_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def torch() -> Any:
    return import_torch()


@pytest.fixture
def good() -> str:
    """Return the text of a spec that is valid: seven lines, to which a test adds its own."""
    return GOOD


LoadSuite = Callable[..., Suite]


@pytest.fixture
def load_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadSuite:
    """Return a function that writes files below a folder of its own and loads them:
    ``load_suite({"a/b.yaml": text}, backends=text)``.
    """
    monkeypatch.chdir(tmp_path)

    def load_files(files: Mapping[str, str] | str, *, backends: str = "") -> Suite:
        for name, text in ({"spec.yaml": files} if isinstance(files, str) else files).items():
            path = tmp_path / "suite" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        extra = []
        if backends:
            (tmp_path / "vendor.yaml").write_text(backends, "utf-8")
            extra = [Path("vendor.yaml")]
        return load([Path("suite")], extra)

    return load_files


Lines = Callable[..., list[str]]


def _problems(load_suite: LoadSuite, line: Callable[[Diagnostic], str]) -> Lines:
    """Return a function that loads files and returns a line for each of their problems, without the
    folder.
    """

    def lines(files: Mapping[str, str] | str, *, backends: str = "") -> list[str]:
        try:
            load_suite(files, backends=backends)
        except InvalidSpecs as error:
            return [line(problem).removeprefix("suite/") for problem in error.diagnostics]
        return []

    return lines


@pytest.fixture
def codes_of(load_suite: LoadSuite) -> Lines:
    """Return a function that loads files and returns place and code of each problem; the place in
    ``spec.yaml`` without the file.
    """
    return _problems(
        load_suite,
        lambda problem: f"{problem.position} {problem.code}".removeprefix("suite/spec.yaml:"),
    )


@pytest.fixture
def problems_of(load_suite: LoadSuite) -> Lines:
    """Return a function that loads files and returns what is wrong with them, one line each, as
    ``validate`` prints it.
    """
    return _problems(load_suite, str)
