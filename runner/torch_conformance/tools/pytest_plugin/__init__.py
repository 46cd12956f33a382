"""The plugin of pytest: ``pytest --conformance specs/`` collects the cases of specs, and runs them
in one run of this program.

pytest imports this module in every session, so it imports nothing of this program before
``--conformance`` is given.

PYTEST_DONT_REWRITE: there is no assertion here, and pytest warns where this module was imported
before it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PLUGIN = "conformance-session"


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("conformance", "torch-conformance")
    group.addoption(
        "--conformance",
        action="store_true",
        help="collect the specs (YAML files) of the given folders, and run their cases",
    )
    group.addoption(
        "--conformance-run",
        metavar="OPTIONS",
        default="",
        help="options of 'torch-conformance run' for these cases: --conformance-run='--timeout 60 "
        "--backends mine.yaml'",
    )
    parser.addini(
        "conformance_run",
        "options of 'torch-conformance run', before those of --conformance-run",
        default="",
    )
    parser.addini(
        "conformance_specs",
        "folders of specs, relative to the root: other YAML files are not collected, and ids "
        "begin below them "
        "(default: the first folder below the root on the path of a spec)",
        type="linelist",
        default=[],
    )


def pytest_configure(config: "pytest.Config") -> None:
    """Register the plugin's hooks, where they are wanted."""
    if config.getoption("--conformance"):
        from torch_conformance.tools.pytest_plugin.items import Session

        config.pluginmanager.register(Session(config), PLUGIN)
