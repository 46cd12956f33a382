"""Backends as data: what ships, what a vendor adds, and who runs whose specs."""

from pathlib import Path

import pytest

from torch_conformance.language.backends import load_backends
from torch_conformance.matching.filecheck import parse
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.vocabulary.expectations.texts import check_specific_checks

VENDOR = (
    "vendor: {summary: A backend of a vendor, device: cuda, joins: [rocm], proof: {graphs: "
    "{min: 1}}}\n"
)


def codes(text: str, tmp_path: Path) -> list[str]:
    (tmp_path / "vendor.yaml").write_text(text)
    with pytest.raises(InvalidSpecs) as caught:
        load_backends([tmp_path / "vendor.yaml"])
    return [
        f"{problem.position.line}:{problem.position.column} {problem.code}"
        for problem in caught.value.diagnostics
    ]


def test_a_spec_runs_on_what_it_names_and_on_what_joins_that(tmp_path: Path) -> None:
    (tmp_path / "vendor.yaml").write_text(
        VENDOR + VENDOR.replace("vendor:", "board:", 1).replace("[rocm]", "[vendor]")
    )
    backends = load_backends([tmp_path / "vendor.yaml"])
    assert [backend.name for backend in backends.of(["cpu"])] == ["cpu"]
    of_rocm = ["rocm", "rocm-ck", "rocm-cktile", "rocm-mixed", "vendor"]
    assert [backend.name for backend in backends.of(["rocm"], ["gemm"])] == [*of_rocm, "board"]
    assert [backend.name for backend in backends.of(["vendor"])] == ["vendor", "board"]
    assert [backend.name for backend in backends.of(["board", "rocm"], ["gemm"])] == [
        "board",
        *of_rocm,
    ]
    assert backends.by_name["board"].names == {"board", "vendor", "rocm"}


@pytest.mark.parametrize(
    ("named", "tags", "runs"),
    [
        (["rocm"], [], ["rocm"]),
        (["rocm"], ["cache"], ["rocm"]),
        (["rocm"], ["cache", "gemm"], ["rocm", "rocm-ck", "rocm-cktile", "rocm-mixed", "vendor"]),
        (["rocm", "vendor"], [], ["rocm", "vendor"]),
        (["rocm-ck"], [], ["rocm-ck", "vendor"]),
        (["cpu"], ["gemm"], ["cpu"]),
    ],
)
def test_a_backend_may_take_the_specs_of_another_that_have_a_tag(
    named: list[str], tags: list[str], runs: list[str], tmp_path: Path
) -> None:
    (tmp_path / "vendor.yaml").write_text(VENDOR.replace("[rocm]", "[rocm-ck]"))
    backends = load_backends([tmp_path / "vendor.yaml"])
    assert [backend.name for backend in backends.of(named, tags)] == runs
    assert backends.by_name["vendor"].names == {"vendor", "rocm-ck", "rocm"}, (
        "conditions that name rocm mean it all the same"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("[rocm]", "[rocn]"), "1:64 unknown-backend"),
        (("[rocm]", "[vendor]"), "1:64 backend-loop"),
        (("vendor:", "rocm:"), "1:1 repeated-backend"),
        ((", proof: {graphs: {min: 1}}", ""), "1:1 no-proof"),
        (("{min: 1}", "{min: 0}"), "1:78 expectation"),
        (("{min: 1}", "{min: 3, max: 2}"), "1:78 expectation"),
        (("{graphs: {min: 1}}", '{code: ""}'), "1:85 expectation"),
        (("{graphs: {min: 1}}", '{choices: {match: "["}}'), "1:96 bad-pattern"),
        (("{graphs: {min: 1}}", "{}"), "1:78 empty"),
        (("device: cuda", "device: gpu"), "1:50 device-without-module"),
        (("device: cuda", "device: GPU"), "1:50 wrong-text"),
        (("device: cuda", "device: cuda, requires: [tritn]"), "1:67 unknown-capability"),
        (("device: cuda", "device: cuda, requires: [python]"), "1:67 capability-without-argument"),
        (("vendor:", "Vendor:"), "1:1 bad-name"),
        (("device: cuda, ", ""), "1:9 missing-key"),
        (("joins:", "jions:"), "1:56 unknown-key"),
        (("joins: [rocm]", "only_tags: [gemm]"), "1:56 only-tags-without-joins"),
        (("joins: [rocm]", "joins: [rocm], only_tags: []"), "1:82 empty"),
    ],
)
def test_what_is_wrong_with_a_vendors_file(
    change: tuple[str, str], code: str, tmp_path: Path
) -> None:
    assert codes(VENDOR.replace(*change, 1), tmp_path) == [code]


# -- devices of vendors ----------------------------------------------------------------------------


def of_device(device: str, module: str = "") -> str:
    registered = f", module: {module}" if module else ""
    return (
        f"vendor: {{summary: A backend of a vendor, device: {device}{registered}, proof: "
        f"{{graphs: {{min: 1}}}}}}\n"
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package that must not be run: it ends the process that imports it."""
    folder = tmp_path / "site" / "made_vendor"
    (folder / "inner").mkdir(parents=True)
    for name in (
        "__init__.py",
        "conformance.py",
        "compiled.cpython-311-x86_64-linux-gnu.so",
        "inner/deep.py",
    ):
        (folder / name).write_text("raise SystemExit('was run')\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


@pytest.mark.parametrize(
    "module",
    [
        "made_vendor",
        "made_vendor.conformance",
        "made_vendor.compiled",
        "made_vendor.inner.deep",
        "absent.part",
    ],
)
def test_a_module_registers_a_device(tmp_path: Path, package: Path, module: str) -> None:
    (tmp_path / "vendor.yaml").write_text(of_device("madeup:1", module))
    backend = load_backends([tmp_path / "vendor.yaml"]).by_name["vendor"]
    assert (backend.device, backend.module) == ("madeup:1", module)
    assert [str(one) for one in backend.requires] == [f"device madeup={module}"]


@pytest.mark.parametrize(
    ("device", "module", "code"),
    [
        ("cudaa", "", "1:50 device-without-module"),
        ("cuda:0", "made_vendor", "1:66 module-of-a-known-device"),
        ("madeup", "made_vendor.conformence", "1:66 no-module"),
        ("madeup", "made_vendor.inner.gone", "1:66 no-module"),
        ("madeup", "made_vendor.conformance.more", "1:66 no-module"),
    ],
)
def test_devices_and_modules_that_cannot_be(
    tmp_path: Path, package: Path, device: str, module: str, code: str
) -> None:
    assert codes(of_device(device, module), tmp_path) == [code]


def test_the_directives_of_the_shipped_proofs_can_be_read_and_name_something() -> None:
    """They are read where a case is judged by them."""
    texts = [
        backend.proof.code for backend in load_backends().by_name.values() if backend.proof.code
    ]
    assert len(texts) > 1
    for text in texts:
        check_specific_checks(parse(text))
