"""The page of a run, of several runs and of a repair in a browser: quiet, readable, named, and reached by keyboard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_checks import CONTRAST, NAMED, REACHABLE, visit
from support import policy_folder
from test_repair import Fake, serially

import epymarl_fairtest as fairtest
from benchmarks import page
from epymarl_fairtest.host import trainer
from epymarl_fairtest.report.page import make_report
from epymarl_fairtest.report.several import make_side_by_side
from epymarl_fairtest.study import backends

pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

MISSING = "no chromium and chromedriver on PATH: apt install chromium chromium-driver"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not (page.CHROMIUM and page.DRIVER), reason=MISSING)]
SMALL: dict[str, Any] = {"method": "random", "budget": 60, "theta": 0.9, "progress": False}
MODES = {  # width, scheme, medium
    "desktop": (1280, "light", ""),
    "dark": (1280, "dark", ""),
    "phone": (390, "light", ""),
    "print": (718, "light", "print"),
}
every_page = pytest.mark.parametrize("name", ["run", "several", "repair"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    team = policy_folder(root / "team", "spread")
    one = fairtest.test(team, out=root / "one", explain=2, **SMALL)
    two = fairtest.test(team, out=root / "two", explain=0, report=False, seed=1, **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "run_all", serially)
        patch.setattr(trainer, "HostTrainer", Fake)
        repaired = fairtest.repair(one, root / "repaired", executions=120, steps=100, weight=1, seeds=1, jobs=1)
    assert repaired.page
    several = make_side_by_side([one.path, two.path], root / "several.html")
    return {"run": make_report(one.path), "several": several, "repair": repaired.page}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with page.browser() as driver:
        yield driver


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Callable[[str, str], Any]:
    def shown(name: str, mode: str) -> Any:
        width, scheme, media = MODES[mode]
        return visit(browser, pages[name].as_uri(), width=width, scheme=scheme, media=media)

    return shown


@pytest.mark.parametrize("mode", MODES)
@every_page
def test_a_page_is_quiet_fits_and_can_be_read(name: str, mode: str, opened: Callable[[str, str], Any]) -> None:
    driver = opened(name, mode)
    assert driver.get_log("browser") == []
    told = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:") and url != driver.current_url] == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= MODES[mode][0]
    assert driver.execute_script(CONTRAST) == []
    assert driver.execute_script(NAMED) == []


@every_page
def test_everything_is_named_and_reached_by_the_tab_key(name: str, opened: Callable[[str, str], Any]) -> None:
    driver = opened(name, "desktop")
    controls = driver.find_elements(By.CSS_SELECTOR, "button, select, input, a[href], [tabindex='0'], [role=img]")
    nameless = [
        one.get_attribute("outerHTML")[:100] for one in controls if one.is_displayed() and not one.accessible_name
    ]
    assert nameless == []
    count = driver.execute_script(REACHABLE)
    driver.execute_script(
        "window.reached = new Set(); addEventListener('focusin', (e) => window.reached.add(e.target))"
    )
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    for _ in range(count):
        driver.switch_to.active_element.send_keys(Keys.TAB)
    assert driver.execute_script("return window.reached.size") >= count
