"""The HTML report in headless Chromium: nothing hostile runs, filters are in the address, keys
work.

Needs playwright and a Chromium.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.report.test_html_report import ADDRESS, HOSTILE, case, hostile_run, write
from torch_conformance.model.outcomes import Outcome

pytestmark = pytest.mark.nightly(
    reason="starts a browser; "
    "tests/unit/report/test_html_report.py reads the same files without one"
)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
VIEWS = ("summary", "cases", "matrix", "run")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (the extra browser)"
    )
    with api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Return a page that notes errors, dialogs, what it loads and what its policy refused."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    made = context.new_page()
    made.problems, made.loaded = [], []
    made.on("pageerror", lambda error: made.problems.append(str(error)))
    made.on("console", lambda message: made.problems.append(message.text))
    made.on("dialog", lambda dialog: made.problems.append(dialog.message))
    made.on("request", lambda request: made.loaded.append(request.url))
    yield made
    context.close()


def open_report(page: Any, folder: Path, address: str = "") -> None:
    page.goto((folder / "index.html").as_uri() + address)
    page.wait_for_function("() => typeof T === 'object' && T.renderedAt")


def go(page: Any, address: str) -> None:
    page.evaluate("address => { location.hash = address; }", address)
    page.wait_for_timeout(250)


@pytest.fixture
def ordinary(tmp_path: Path) -> Path:
    """Return the folder of a report of 300 cases, three of which failed."""
    cases = [
        replace(case(f"n{number:03}", Outcome.PASS), tags=("even",) if number % 2 == 0 else ())
        for number in range(300)
    ]
    for number in (7, 100, 200):
        cases[number] = replace(
            case(f"n{number:03}", reason="counter: expected 1, observed 0"), seconds=9.0
        )
    write(tmp_path / "run", cases)
    return tmp_path / "run"


def test_no_hostile_script_runs(page: Any, tmp_path: Path) -> None:
    write(tmp_path / "run", hostile_run())
    open_report(page, tmp_path / "run")
    for view in VIEWS:
        go(page, f"#/{view}")
    for number in range(4):
        page.evaluate("number => T.go({ view: 'case', id: T.id(number) })", number)
        page.wait_for_selector("aside[aria-label=Facts]")
        page.evaluate(
            "() => { for (const one of document.querySelectorAll('details')) one.open = true; }"
        )
        assert page.locator(".case header").inner_text().count("window.hacked") >= 1
    go(
        page,
        f"#/cases?q={HOSTILE}&outcome={HOSTILE}&reason={HOSTILE}&spec={HOSTILE}&id={HOSTILE}&{HOSTILE}={HOSTILE}",
    )
    assert page.evaluate("() => window.hacked") is None
    assert page.problems == []
    assert all(url.startswith((tmp_path / "run").as_uri()) for url in page.loaded)
    assert (
        page.evaluate(
            "() => document.querySelectorAll('img, iframe, object, embed, form, base').length"
        )
        == 0
    )


def test_only_addresses_of_the_web_are_links(page: Any, tmp_path: Path) -> None:
    good = case("good", Outcome.XFAIL)
    bad = case("bad", Outcome.XFAIL)
    bad = replace(
        bad,
        waivers=tuple(replace(waiver, issue=ADDRESS) for waiver in bad.waivers),
        reason=f"see {ADDRESS}",
    )
    write(tmp_path / "run", [good, bad])
    open_report(page, tmp_path / "run")
    for result, links in ((good, ["https://example.org/1"]), (bad, [])):
        page.evaluate("id => T.go({ view: 'case', id })", result.case_id)
        page.wait_for_selector("aside[aria-label=Facts]")
        found = page.evaluate("() => [...document.querySelectorAll('a')].map((one) => one.href)")
        assert [address for address in found if not address.startswith("file:")] == links
    assert ADDRESS in page.locator("aside[aria-label=Facts]").inner_text()


def test_a_red_case_is_one_click_away(page: Any, ordinary: Path) -> None:
    open_report(page, ordinary)
    assert page.locator("h1").inner_text() == "3 cases failed"
    page.click("a.cause")
    page.wait_for_selector(".fail")
    assert "expected" in page.locator(".fail").first.inner_text()
    assert page.problems == []


def test_filters_are_in_the_address(page: Any, ordinary: Path) -> None:
    open_report(page, ordinary, "#/cases?outcome=FAIL")
    assert page.locator("#count").inner_text() == "3 cases"
    page.locator("label", has_text="PASS").click()
    assert "outcome=FAIL&outcome=PASS" in page.url
    assert page.locator("#count").inner_text() == "300 cases"
    page.fill("input[type=search]", "n10 even")
    page.wait_for_timeout(250)
    assert page.locator("#count").inner_text() == "4 cases"
    again = page.url
    open_report(page, ordinary, again[again.index("#") :])
    assert page.locator("#count").inner_text() == "4 cases"
    assert page.input_value("input[type=search]") == "n10 even"
