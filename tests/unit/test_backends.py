"""Backends as data: what ships, what a vendor adds, and who runs whose specs."""

from pathlib import Path

import pytest

from runner.language.backends import load_backends
from runner.model.diagnostics import InvalidSpecs

VENDOR = "vendor: {summary: A backend of a vendor, device: cuda, joins: [rocm], proof: {graphs: {min: 1}}}\n"


def problems(text: str, tmp_path: Path) -> list[str]:
    (tmp_path / "vendor.yaml").write_text(text)
    with pytest.raises(InvalidSpecs) as caught:
        load_backends([tmp_path / "vendor.yaml"])
    return [problem.message for problem in caught.value.diagnostics]


def test_a_spec_runs_on_what_it_names_and_on_what_joins_that(tmp_path: Path) -> None:
    (tmp_path / "vendor.yaml").write_text(VENDOR + VENDOR.replace("vendor:", "board:", 1).replace("[rocm]", "[vendor]"))
    backends = load_backends([tmp_path / "vendor.yaml"])
    assert [backend.name for backend in backends.of(["cpu"])] == ["cpu"]
    assert [backend.name for backend in backends.of(["rocm"], ["gemm"])] == [
        "rocm",
        "rocm-ck",
        "rocm-cktile",
        "rocm-mixed",
        "vendor",
        "board",
    ]
    assert [backend.name for backend in backends.of(["vendor"])] == ["vendor", "board"]
    assert [backend.name for backend in backends.of(["board", "rocm"], ["gemm"])] == [
        "board",
        "rocm",
        "rocm-ck",
        "rocm-cktile",
        "rocm-mixed",
        "vendor",
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
    assert backends.by_name["vendor"].names == {"vendor", "rocm-ck", "rocm"}, "conditions that name rocm mean it all the same"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[rocm]", "[rocn]"), "unknown backend 'rocn'"),
        (("[rocm]", "[vendor]"), "'vendor' joins itself through 'vendor'"),
        (("vendor:", "rocm:"), "the backend 'rocm' is defined twice"),
        ((", proof: {graphs: {min: 1}}", ""), "the backend 'vendor' has no proof that it ran"),
        (("{min: 1}", "{min: 0}"), "{min: 0} is true for every count"),
        (("{min: 1}", "{min: 3, max: 2}"), "the range from 3 to 2 is empty"),
        (("{graphs: {min: 1}}", '{code: ""}'), "no directives: nothing would be checked"),
        (
            ("{graphs: {min: 1}}", '{choices: {match: "["}}'),
            "the pattern is not a regular expression: unterminated character set at offset 0",
        ),
        (("{graphs: {min: 1}}", "{}"), "proof is empty"),
        (("device: cuda", "device: gpu"), "'gpu' is no device of torch itself, and no module registers it"),
        (("device: cuda", "device: GPU"), "the text 'GPU' is not a valid device"),
        (("device: cuda", "device: cuda, requires: [tritn]"), "unknown capability 'tritn'"),
        (("device: cuda", "device: cuda, requires: [python]"), "the capability 'python' needs an argument that is text"),
        (("vendor:", "Vendor:"), "'Vendor' is not a valid name here"),
        (("device: cuda, ", ""), "backend needs the key 'device'"),
        (("joins:", "jions:"), "unknown key 'jions' in backend"),
        (("joins: [rocm]", "only_tags: [gemm]"), "only_tags selects specs of joined backends, and this one joins none"),
        (("joins: [rocm]", "joins: [rocm], only_tags: []"), "only_tags is empty"),
    ],
)
def test_what_is_wrong_with_a_vendors_file(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    assert problems(VENDOR.replace(*change, 1), tmp_path) == [message]


# -- devices of vendors -------------------------------------------------------------------------------------------------

DEVICE = "vendor: {{summary: A backend of a vendor, device: {device}, {module}proof: {{graphs: {{min: 1}}}}}}\n"


def of_device(device: str, module: str = "") -> str:
    return DEVICE.format(device=device, module=f"module: {module}, " if module else "")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package that must not be run: it ends the process that imports it."""
    folder = tmp_path / "site" / "made_vendor"
    (folder / "inner").mkdir(parents=True)
    for name in ("__init__.py", "conformance.py", "compiled.cpython-311-x86_64-linux-gnu.so", "inner/deep.py"):
        (folder / name).write_text("raise SystemExit('was run')\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


@pytest.mark.parametrize(
    "module", ["made_vendor", "made_vendor.conformance", "made_vendor.compiled", "made_vendor.inner.deep", "absent.part"]
)
def test_a_module_registers_a_device(tmp_path: Path, package: Path, module: str) -> None:
    (tmp_path / "vendor.yaml").write_text(of_device("madeup:1", module))
    backend = load_backends([tmp_path / "vendor.yaml"]).by_name["vendor"]
    assert (backend.device, backend.module) == ("madeup:1", module)
    assert [str(one) for one in backend.requires] == [f"device madeup={module}"]


@pytest.mark.parametrize(
    ("device", "module", "message"),
    [
        ("cudaa", "", "'cudaa' is no device of torch itself, and no module registers it"),
        ("madeup", "", "'madeup' is no device of torch itself, and no module registers it"),
        ("cuda:0", "made_vendor", "torch itself brings the device 'cuda', so no module registers it"),
        ("madeup", "made_vendor.conformence", "no module 'conformence' in made_vendor"),
        ("madeup", "made_vendor.inner.gone", "no module 'gone' in made_vendor.inner"),
        ("madeup", "made_vendor.conformance.more", "no module 'conformance' in made_vendor"),
    ],
)
def test_devices_and_modules_that_cannot_be(tmp_path: Path, package: Path, device: str, module: str, message: str) -> None:
    assert message in problems(of_device(device, module), tmp_path)
