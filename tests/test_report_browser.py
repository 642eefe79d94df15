"""The page of a run in a real browser: it opens from a file, asks nobody for anything, and its controls work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_checks import visit
from test_search import chosen, search, team, walkers

from benchmarks import page
from epymarl_fairtest.report.page import make_report
from epymarl_fairtest.tasks.foraging.rules import ForagingTask
from epymarl_fairtest.tasks.scene import Field

pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

MISSING = "no chromium and chromedriver on PATH: apt install chromium chromium-driver"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not (page.CHROMIUM and page.DRIVER), reason=MISSING)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of the pages of small real runs."""
    root = tmp_path_factory.mktemp("pages")
    search(team("foraging"), chosen(budget=400), root / "foraging")
    search(walkers(), chosen(theta=0.9, epsilon=0.3), root / "generic")
    search(team(), chosen(method="random", budget=150, theta=0.9, engine="twin", explain=12), root / "explained")
    found = {name: make_report(root / name).as_uri() for name in ("foraging", "generic", "explained")}
    for shape in ("disc", "diamond", "target", "hexagon"):  # the last one is known to nobody
        with reshaped(shape):
            copy = Path(shutil.copytree(root / "foraging", root / shape, ignore=shutil.ignore_patterns("report")))
            found[shape] = make_report(copy).as_uri()
    return found


@contextmanager
def reshaped(shape: str) -> Iterator[None]:
    """Food of another shape, never eaten, that leaves a trail."""
    field = ForagingTask.field

    def other(task: ForagingTask, states: Any) -> Field:
        drawn = field(task, states)
        there = np.ones(len(states), bool)
        bodies = [
            body if body.shape == "agent" else replace(body, shape=shape, present=there, trail=True)
            for body in drawn.bodies
        ]
        return replace(drawn, bodies=bodies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForagingTask, "field", other)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with page.browser() as driver:
        yield driver


@pytest.fixture
def opened(browser: Any, pages: dict[str, str]) -> Iterator[Callable[..., Any]]:
    """Opens a page: see `visit`."""

    def shown(name: str = "foraging", **wanted: Any) -> Any:
        return visit(browser, pages[name], **wanted)

    yield shown
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def column(driver: Any, name: str) -> list[str]:
    """The cells of a column of the table of failures, as they stand there."""
    script = """
        const heads = [...document.querySelectorAll('#failures thead th')];
        const place = heads.findIndex(th => th.dataset.column === arguments[0]);
        return [...document.querySelectorAll('#failures tbody tr')].map(tr => tr.cells[place].textContent)"""
    cells: list[str] = driver.execute_script(script, name)
    return cells


def header(driver: Any, name: str) -> Any:
    return driver.find_element(By.CSS_SELECTOR, f"#failures th[data-column={name}]")


def click(driver: Any, element: Any) -> None:
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    element.click()


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.replace("\u2212", "-")) for cell in cells]


def drawing(driver: Any, player: Any) -> str:
    picture: str = driver.execute_script("return arguments[0].querySelector('canvas').toDataURL()", player)
    return picture


def step(player: Any) -> int:
    return int(player.get_attribute("data-step"))


# --- quiet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["foraging", "generic"])
def test_it_opens_from_a_file_without_errors_and_asks_nobody(name: str, opened: Callable[..., Any]) -> None:
    driver = opened(name)
    assert "treats an agent unfairly in" in driver.find_element(By.TAG_NAME, "h1").text
    assert driver.get_log("browser") == []
    asked = [
        message["params"]["request"]["url"]
        for entry in driver.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert driver.current_url in asked
    assert [url for url in asked if not url.startswith(("data:", "about:")) and url != driver.current_url] == []


def test_its_policy_lets_nothing_out_even_if_a_script_tried(opened: Callable[..., Any]) -> None:
    driver = opened()
    told = driver.execute_async_script(
        "const done = arguments[0]; fetch(location.href).then(() => done('loaded'), error => done(error.name))"
    )
    assert told == "TypeError"
    driver.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)"
    )
    assert driver.execute_script("return window.ran === undefined")
    refused = " ".join(entry["message"] for entry in driver.get_log("browser"))
    assert refused.count("Content Security Policy") >= 3


# --- the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["index", "id", "start_step", "received1", "root_seed"])
def test_a_click_on_a_header_sorts_and_another_one_turns_it_round(name: str, opened: Callable[..., Any]) -> None:
    driver = opened()
    if name == "index":  # the page comes sorted by it
        assert header(driver, name).get_attribute("aria-sort") == "ascending"
    else:
        click(driver, header(driver, name).find_element(By.TAG_NAME, "button"))
    up = numbers(column(driver, name))
    assert up == sorted(up)
    click(driver, header(driver, name).find_element(By.TAG_NAME, "button"))
    down = numbers(column(driver, name))
    assert header(driver, name).get_attribute("aria-sort") == "descending"
    assert down == sorted(down, reverse=True)
    assert len(set(down)) > 1
    assert len(driver.find_elements(By.CSS_SELECTOR, "#failures th[aria-sort]")) == 1


def test_sorting_works_by_keyboard(opened: Callable[..., Any]) -> None:
    driver = opened()
    header(driver, "length").find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert header(driver, "length").get_attribute("aria-sort") == "ascending"
    assert numbers(column(driver, "length")) == sorted(numbers(column(driver, "length")))


def test_pages_of_the_table_follow_each_other(opened: Callable[..., Any]) -> None:
    driver = opened()
    first, after, before = column(driver, "id"), *(driver.find_element(By.ID, name) for name in ("after", "before"))
    assert not before.is_enabled()
    click(driver, after)
    second = column(driver, "id")
    assert not set(first) & set(second)
    assert driver.find_element(By.ID, "count").text.startswith("26–")
    click(driver, before)
    assert column(driver, "id") == first


def test_filters_leave_what_fits_and_reset_brings_all_back(opened: Callable[..., Any]) -> None:
    driver = opened()
    form = driver.find_element(By.ID, "filters")
    count = driver.find_element(By.ID, "count")
    everything = count.text
    Select(form.find_element(By.NAME, "operator")).select_by_visible_text("mutation")
    assert set(column(driver, "operator")) == {"mutation"}
    assert "filtered from" in count.text
    index = numbers(column(driver, "index"))
    middle = sorted(index)[len(index) // 2]
    form.find_element(By.NAME, "high").send_keys(str(middle))
    assert max(numbers(column(driver, "index"))) <= middle
    form.find_element(By.NAME, "low").send_keys(str(middle))
    assert set(numbers(column(driver, "index"))) == {middle}
    click(driver, form.find_element(By.CSS_SELECTOR, "button[type=reset]"))
    WebDriverWait(driver, 5).until(lambda _: count.text == everything)
    seed = column(driver, "root_seed")[3]
    form.find_element(By.NAME, "text").send_keys(seed)
    assert set(column(driver, "root_seed")) == {seed}
    form.find_element(By.NAME, "text").send_keys(" nobody")
    assert column(driver, "id") == []
    assert count.text.startswith("0–0 of 0")


# --- the players --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["foraging", "generic"])
def test_the_slider_changes_the_step_the_drawing_and_the_bars(name: str, opened: Callable[..., Any]) -> None:
    driver = opened(name)
    for player in driver.find_elements(By.CLASS_NAME, "player"):
        slider = player.find_element(By.CSS_SELECTOR, "input[type=range]")
        last, bars = drawing(driver, player), [bar.text for bar in player.find_elements(By.CLASS_NAME, "value")]
        assert step(player) == int(slider.get_attribute("max")) > 3
        slider.send_keys(Keys.HOME)
        assert step(player) == 0
        assert drawing(driver, player) != last
        assert {float(bar.text) for bar in player.find_elements(By.CLASS_NAME, "value")} == {0.0}
        slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        assert step(player) == 2
        assert player.find_element(By.CLASS_NAME, "now").text.startswith("step 2 of ")
        slider.send_keys(Keys.END)
        assert drawing(driver, player) == last
        assert [bar.text for bar in player.find_elements(By.CLASS_NAME, "value")] == bars


class Metronome:
    """The browser's timer, moved by hand: no test waits."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        driver.execute_script(
            "window.setInterval = (tick, pace) => { Object.assign(window, {tick, pace}); return 1; };"
            "window.clearInterval = () => { window.tick = null; }"
        )

    @property
    def pace(self) -> float:
        return float(self._driver.execute_script("return window.pace"))

    @property
    def running(self) -> bool:
        return bool(self._driver.execute_script("return Boolean(window.tick)"))

    def tick(self, times: int = 1) -> None:
        self._driver.execute_script("for (let n = 0; n < arguments[0] && window.tick; n++) window.tick()", times)


def test_play_runs_to_the_end_pauses_and_begins_again(opened: Callable[..., Any]) -> None:
    driver = opened()
    timer, player = Metronome(driver), driver.find_element(By.CLASS_NAME, "player")
    last, button = step(player), player.find_element(By.CLASS_NAME, "play")
    click(driver, button)  # at the end: from the beginning
    assert (button.text, step(player), timer.running) == ("Pause", 0, True)
    before, pace = drawing(driver, player), timer.pace
    timer.tick(2)
    assert step(player) == 2
    assert drawing(driver, player) != before
    Select(player.find_element(By.TAG_NAME, "select")).select_by_value("4")
    assert timer.pace == pace / 4
    click(driver, button)
    assert (button.text, step(player), timer.running) == ("Play", 2, False)
    click(driver, button)
    timer.tick(100)
    assert (button.text, step(player), timer.running) == ("Play", last, False)


def test_a_player_is_worked_by_keys_alone(opened: Callable[..., Any]) -> None:
    driver = opened()
    timer, player = Metronome(driver), driver.find_element(By.CLASS_NAME, "player")
    last = step(player)
    for key, expected in ((Keys.HOME, 0), (Keys.ARROW_RIGHT, 1), (Keys.ARROW_LEFT, 0), (Keys.END, last)):
        player.send_keys(key)
        assert step(player) == expected
    player.send_keys(Keys.HOME, Keys.SPACE)
    assert timer.running
    timer.tick(3)
    assert step(player) == 3
    player.send_keys(Keys.SPACE)
    assert not timer.running
    player.send_keys(Keys.SPACE, Keys.ARROW_RIGHT)  # a step by hand stops the film
    assert (timer.running, step(player)) == (False, 4)


def test_the_step_of_the_change_is_marked(opened: Callable[..., Any]) -> None:
    driver = opened()
    scenes = {scene["id"]: scene for scene in driver.execute_script(
        "return JSON.parse(document.getElementById('data').textContent).scenes"
    )}  # fmt: skip
    assert any(scene["changed"] for scene in scenes.values())
    for player in driver.find_elements(By.CLASS_NAME, "player"):
        scene = scenes[int(player.get_attribute("id").split("-")[1])]
        marks = player.find_elements(By.CLASS_NAME, "mark")
        assert len(marks) == scene["changed"]
        if marks:
            slider = player.find_element(By.CSS_SELECTOR, "input[type=range]").rect
            at = (marks[0].rect["x"] + 5 - slider["x"] - 8) / (slider["width"] - 16)
            assert at == pytest.approx(scene["start"] / (len(scene["received"]) - 1), abs=0.02)


def test_the_film_can_be_taken_away(opened: Callable[..., Any]) -> None:
    driver = opened()
    for player in driver.find_elements(By.CLASS_NAME, "player"):
        link = player.find_element(By.CLASS_NAME, "download")
        assert link.get_attribute("href").startswith("data:image/gif;base64,R0lGOD")
        assert link.get_attribute("download") == player.get_attribute("id") + ".gif"


def test_a_shape_that_the_player_does_not_know_is_drawn_as_a_disc(opened: Callable[..., Any]) -> None:
    drawn = {}
    for shape in ("foraging", "disc", "diamond", "target", "hexagon"):
        driver = opened(shape)
        drawn[shape] = drawing(driver, driver.find_element(By.CLASS_NAME, "player"))
        assert driver.get_log("browser") == []
    assert drawn["hexagon"] == drawn["disc"]
    assert len(set(drawn.values())) == 4


# --- how it looks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["foraging", "generic"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(width: int, name: str, opened: Callable[..., Any]) -> None:
    driver = opened(name, width=width)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    outside = driver.execute_script(
        "return [...document.querySelectorAll('main *, header *')].filter(e => !e.closest('.scroll, svg')"
        " && e.getBoundingClientRect().right > arguments[0] + 1).map(e => e.outerHTML.slice(0, 80))",
        width,
    )
    assert outside == []


def test_dark_is_dark_and_readable(opened: Callable[..., Any]) -> None:
    ink = "return getComputedStyle(document.querySelector('svg.drawn text')).fill"
    paper = "return getComputedStyle(document.body).backgroundColor"

    def light(colour: str) -> float:
        return sum(map(int, colour[4:-1].split(","))) / 3

    found = {}
    for scheme in ("light", "dark"):
        driver = opened(scheme=scheme)
        player = driver.find_element(By.CLASS_NAME, "player")
        found[scheme] = (*(light(driver.execute_script(script)) for script in (ink, paper)), drawing(driver, player))
    assert found["light"][1] - found["light"][0] > 150
    assert found["dark"][0] - found["dark"][1] > 150
    assert found["light"][2] != found["dark"][2]


def test_a_change_of_scheme_draws_the_players_again(opened: Callable[..., Any]) -> None:
    driver = opened(scheme="light")
    player = driver.find_element(By.CLASS_NAME, "player")
    before = drawing(driver, player)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
    WebDriverWait(driver, 5).until(lambda _: drawing(driver, player) != before)


def test_print_shows_stills_instead_of_players(opened: Callable[..., Any]) -> None:
    driver = opened(media="print", width=718)  # A4 between its margins
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 718
    player = driver.find_element(By.CLASS_NAME, "player")
    assert player.find_element(By.CLASS_NAME, "still").is_displayed()
    assert not player.find_element(By.TAG_NAME, "canvas").is_displayed()
    assert not driver.find_element(By.ID, "filters").is_displayed()
    assert driver.execute_script("return getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"


def test_without_scripts_there_are_films_and_rows(opened: Callable[..., Any], browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    driver = opened()
    player = driver.find_element(By.CLASS_NAME, "player")
    assert player.find_element(By.CLASS_NAME, "gif").is_displayed()
    assert not player.find_element(By.CLASS_NAME, "still").is_displayed()
    assert len(driver.find_elements(By.CSS_SELECTOR, "#failures tbody tr")) > 10


def test_everything_that_can_be_used_has_a_name(opened: Callable[..., Any]) -> None:
    driver = opened()
    nameless = [
        element.get_attribute("outerHTML")[:100]
        for element in driver.find_elements(By.CSS_SELECTOR, "button, select, input, a[href], [tabindex='0']")
        if not (element.accessible_name or element.get_attribute("aria-label"))  # none is computed for what is hidden
    ]
    assert nameless == []


# --- answers, commands and rows -----------------------------------------------------------------------


def number_in(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def test_a_command_is_copied_by_its_button(opened: Callable[..., Any]) -> None:
    driver = opened()
    buttons = driver.find_elements(By.CSS_SELECTOR, ".commands .copy")
    assert len(buttons) == 5
    driver.execute_script("document.execCommand = () => { window.taken = document.activeElement.value; return true }")
    click(driver, buttons[0])
    assert driver.execute_script("return window.taken") == buttons[0].get_attribute("data-copy")
    assert buttons[0].text == "Copied"


def test_any_row_of_the_table_opens_its_failure(opened: Callable[..., Any]) -> None:
    driver = opened()
    lines = WebDriverWait(driver, 20).until(lambda page: page.find_elements(By.CSS_SELECTOR, "#failures tbody tr"))
    rows = driver.find_elements(By.CSS_SELECTOR, "#failures .opens")
    assert rows, f"failures without a player of their own, of {len(lines)}"
    number = rows[0].text
    place = column(driver, "id").index(number)
    table = [column(driver, f"received{agent}")[place] for agent in range(3)]
    click(driver, rows[0])
    player = WebDriverWait(driver, 10).until(
        lambda page: page.find_element(By.CSS_SELECTOR, f".opened .player[aria-label^='Failure {number},']")
    )
    assert int(player.get_attribute("data-step")) > 0, "it stands at its end"
    commands = [one.text for one in driver.find_elements(By.CSS_SELECTOR, ".opened code")]
    assert [text.split()[1] for text in commands] == ["replay", "explain"]
    assert all(f" {number}" in text for text in commands)
    received = driver.execute_script(
        "return [...arguments[0].querySelectorAll('.value')].map((value) => value.textContent)", player
    )
    assert [number_in(text) for text in received] == pytest.approx([number_in(text) for text in table], abs=0.011)
    click(driver, rows[0])
    assert not driver.find_elements(By.CSS_SELECTOR, ".opened")
    assert not [one for one in driver.get_log("browser") if one["level"] == "SEVERE"]


def test_a_named_failure_without_a_player_opens_in_the_table(opened: Callable[..., Any]) -> None:
    driver = opened()
    Select(driver.find_element(By.CSS_SELECTOR, "#filters select")).select_by_index(1)  # a filter is in the way
    number = driver.execute_script("""
        const data = JSON.parse(document.getElementById('data').textContent), played = data.scenes.map((one) => one.id);
        const [type, text] = data.table.columns.id, bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
        const ids = [...new ({u1: Uint8Array, u2: Uint16Array, i2: Int16Array, i1: Int8Array}[type])(bytes.buffer)];
        const number = ids.sort((a, b) => b - a).find((id) => !played.includes(id));
        const link = `<a href="#table" data-failure="${number}">it</a>`;
        document.querySelector('main').insertAdjacentHTML('afterbegin', link);
        return number""")
    click(driver, driver.find_element(By.CSS_SELECTOR, f"a[data-failure='{number}']"))
    player = f".opened .player[aria-label^='Failure {number},']"
    WebDriverWait(driver, 10).until(lambda page: page.find_element(By.CSS_SELECTOR, player))
    assert driver.switch_to.active_element.text == str(number)


@pytest.mark.parametrize(("name", "sides"), [("foraging", 1), ("explained", 2)])
def test_a_player_shows_what_each_agent_thought_of_its_actions(
    opened: Callable[..., Any], name: str, sides: int
) -> None:
    driver = opened(name)
    found = driver.find_elements(By.CSS_SELECTOR, ".player")
    player = next(one for one in found if len(one.find_elements(By.CSS_SELECTOR, ".side")) == sides)
    choices = player.find_element(By.CSS_SELECTOR, ".choices")
    assert not choices.find_element(By.TAG_NAME, "table").is_displayed(), "numbers for those who ask"
    click(driver, choices.find_element(By.TAG_NAME, "summary"))
    slider = player.find_element(By.CSS_SELECTOR, "input[type=range]")
    driver.execute_script("arguments[0].value = 1; arguments[0].dispatchEvent(new Event('input'))", slider)
    assert choices.find_element(By.TAG_NAME, "summary").text.startswith("Q-values at step 1")
    scene = driver.execute_script(
        "return JSON.parse(document.getElementById('data').textContent).scenes[arguments[0].dataset.scene]", player
    )
    scenes = [scene, scene.get("instead")][:sides]  # what would have happened has them, too
    tables = choices.find_elements(By.TAG_NAME, "table")
    assert len(tables) == sides
    for table, one in zip(tables, scenes, strict=True):
        rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
        for agent, row in enumerate(rows):
            cells = row.find_elements(By.TAG_NAME, "td")
            assert numbers([cell.text for cell in cells]) == pytest.approx(one["choices"]["scores"][1][agent], abs=0.51)
            (taken,) = (place for place, cell in enumerate(cells) if cell.get_attribute("class") == "taken")
            assert taken == one["choices"]["taken"][1][agent]
        assert len(rows) == 3
