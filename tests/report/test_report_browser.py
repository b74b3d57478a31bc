"""The page in a browser, opened from file:// as a reader opens it."""

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PRINTED_HEIGHT = 186 / 25.4 * 96
"""The height of the text on an A4 page in landscape, in CSS pixels."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1600",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: webdriver.Chrome, reported: SimpleNamespace) -> webdriver.Chrome:
    browser.get_log("performance")
    return open_page(browser, reported)


def open_page(browser: webdriver.Chrome, report: SimpleNamespace) -> webdriver.Chrome:
    """The page of a report once all charts are drawn."""
    browser.get(report.index.as_uri())
    WebDriverWait(browser, 60).until(
        lambda driver: driver.execute_script(
            "return [...document.querySelectorAll('figure')].every(f => f.views?.length)"
        )
    )
    return browser


def marks(driver: webdriver.Chrome, figure: str, kind: str) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, f"#{figure} .chart .mark-{kind}.role-mark path")


def lines(driver: webdriver.Chrome, figure: str) -> int:
    """How many lines are drawn, over all panels."""
    return len([mark for mark in marks(driver, figure, "line") if mark.get_attribute("d")])


def requests(driver: webdriver.Chrome) -> list[str]:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [
        params["request"]["url"] for params in sent if params["documentURL"] == driver.current_url
    ]


def entry(driver: webdriver.Chrome, figure: str, name: str) -> WebElement:
    """The legend's button for a line."""
    buttons = driver.find_elements(By.CSS_SELECTOR, f"#{figure} .legend button")
    button = next(button for button in buttons if button.text.strip() == name)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    return button


def wait(driver: webdriver.Chrome, condition: Any) -> Any:
    return WebDriverWait(driver, 20).until(condition)


def test_the_page_opens_from_a_file_without_network_or_messages(opened: webdriver.Chrome) -> None:
    assert opened.get_log("browser") == []
    assert [url for url in requests(opened) if not url.startswith("data:")] == [opened.current_url]


@pytest.mark.parametrize("figure", ["perplexity_by_length", "loss_by_position"])
def test_a_figure_shows_every_line_in_every_panel(opened: webdriver.Chrome, figure: str) -> None:
    names = [button.text for button in opened.find_elements(By.CSS_SELECTOR, f"#{figure} button")]
    assert {"sinusoidal", "rope", "alibi", "nope"} <= set(names)
    assert lines(opened, figure) == 7  # four encodings at L = 64, three at L = 128
    bands = [mark for mark in marks(opened, figure, "area") if mark.get_attribute("d")]
    assert len(bands) == 7  # between two seeds


@pytest.mark.parametrize("key", [None, Keys.SPACE])
def test_the_legend_hides_and_shows_a_line_in_all_panels(
    opened: webdriver.Chrome, key: str | None
) -> None:
    figure = "perplexity_by_length"
    button = entry(opened, figure, "rope")
    for pressed, count in (("false", 5), ("true", 7)):
        button.send_keys(key) if key else button.click()
        wait(opened, lambda driver, count=count: lines(driver, figure) == count)
        assert button.get_attribute("aria-pressed") == pressed
        assert lines(opened, "loss_by_position") == 7


def test_a_double_click_shows_a_line_alone_and_a_second_one_shows_all_again(
    opened: webdriver.Chrome,
) -> None:
    figure = "perplexity_by_length"
    for count in (2, 7):
        ActionChains(opened).double_click(entry(opened, figure, "alibi")).perform()
        wait(opened, lambda driver, count=count: lines(driver, figure) == count)


def test_shift_and_enter_do_the_same_as_a_double_click(opened: webdriver.Chrome) -> None:
    figure = "perplexity_by_length"
    for count in (2, 7):
        entry(opened, figure, "alibi").send_keys(Keys.SHIFT, Keys.ENTER)
        wait(opened, lambda driver, count=count: lines(driver, figure) == count)


def test_wide_tables_do_not_widen_the_page(opened: webdriver.Chrome) -> None:
    tables = opened.find_elements(By.CSS_SELECTOR, "#results table")
    assert len(tables) == 2
    assert all(table.is_displayed() and "sinusoidal" in table.text for table in tables)
    fits = "return document.documentElement.scrollWidth <= window.innerWidth"
    widths = "return [...document.querySelectorAll('.chart svg')].map(s => s.clientWidth)"
    metrics = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wait(opened, lambda driver: driver.execute_script(fits))
    wait(opened, lambda driver: max(driver.execute_script(widths)) <= 390)
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_javascript_images_stand_in_for_charts(
    browser: webdriver.Chrome, reported: SimpleNamespace
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(reported.index.as_uri())
    stills = browser.find_elements(By.CSS_SELECTOR, "img.still")
    assert len(stills) == 4
    assert all(still.is_displayed() and still.size["width"] > 500 for still in stills)
    charts = browser.find_elements(By.CSS_SELECTOR, ".interactive")
    assert charts and not any(chart.is_displayed() for chart in charts)
    assert "Limitations" in browser.find_element(By.TAG_NAME, "body").text
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_in_print_images_stand_in_for_charts(opened: webdriver.Chrome) -> None:
    stills = opened.find_elements(By.CSS_SELECTOR, "img.still")
    charts = opened.find_elements(By.CSS_SELECTOR, ".interactive")
    assert not any(still.is_displayed() for still in stills)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(still.is_displayed() for still in stills)
    assert not any(chart.is_displayed() for chart in charts)
    figures = opened.find_elements(By.TAG_NAME, "figure")
    assert all(figure.size["height"] <= PRINTED_HEIGHT for figure in figures)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_in_dark_mode_the_text_of_page_and_charts_is_light(opened: webdriver.Chrome) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    lightness = [
        max(map(int, re.findall(r"\d+", opened.execute_script(script, selector, attribute))[:3]))
        for selector, attribute in (
            ("body", "color"),
            (".chart .role-axis-label text", "fill"),
            ("body", "backgroundColor"),
        )
    ]
    assert min(lightness[:2]) > 200 and lightness[2] < 60
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_published_curve_is_dashed_hollow_and_hidden_by_itself(
    browser: webdriver.Chrome, various: SimpleNamespace
) -> None:
    figure, name = "perplexity_relative", "alibi (published)"
    open_page(browser, various)
    dashed = [
        mark
        for mark in marks(browser, figure, "line")
        if mark.get_attribute("stroke-dasharray") == "3,3" and mark.get_attribute("d")
    ]
    assert len(dashed) == 1
    hollow = [m for m in marks(browser, figure, "symbol") if m.get_attribute("fill") == "white"]
    assert len(hollow) == 3
    before = lines(browser, figure)
    entry(browser, figure, name).click()
    wait(browser, lambda driver: lines(driver, figure) == before - 1)


def tooltip(driver: webdriver.Chrome, mark: WebElement) -> str:
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(driver).move_to_element(mark).perform()
    element = wait(driver, lambda d: d.find_element(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))
    return element.text


def test_a_point_shows_its_numbers_under_the_pointer(opened: webdriver.Chrome) -> None:
    target = marks(opened, "perplexity_by_length", "symbol")[-1]
    text = tooltip(opened, target)
    assert "Evaluation length (tokens)" in text and "Perplexity per token" in text
    assert "lowest and highest of 2 seeds" in text and "81920 tokens scored" in text


def test_a_cell_of_the_heat_map_shows_its_numbers_under_the_pointer(
    browser: webdriver.Chrome, various: SimpleNamespace
) -> None:
    open_page(browser, various)
    cells = marks(browser, "loss_by_position_heat", "rect")
    assert len(cells) > 30
    text = tooltip(browser, cells[-1])
    assert "Excess loss (nats per token)" in text
    assert "rope" in text or "alibi" in text


def test_every_task_has_a_panel_and_a_table(
    browser: webdriver.Chrome, tasks: SimpleNamespace
) -> None:
    open_page(browser, tasks)
    figure = browser.find_element(By.ID, "accuracy_by_length")
    for task in ("task_copy", "task_even_pairs"):
        assert f"{task}, trained at L = 64" in figure.text
    assert not browser.find_elements(By.ID, "perplexity_by_length")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tasks table")) == 2


def test_the_bounds_of_bases_are_marked(browser: webdriver.Chrome, bases: SimpleNamespace) -> None:
    open_page(browser, bases)
    text = browser.find_element(By.ID, "perplexity_by_base").text
    assert "bound for L: " in text and "bound for 2L: " in text


def test_a_button_changes_the_scale_of_every_panel(opened: webdriver.Chrome) -> None:
    figure = "perplexity_by_length"
    script = "return document.getElementById(arguments[0]).views?.map(v => v.scale('y').type)"
    buttons = opened.find_elements(By.CSS_SELECTOR, f"#{figure} .scales button")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", buttons[0])
    assert sorted(button.text for button in buttons) == ["linear y", "log y"]
    for button in sorted(buttons, key=lambda button: button.text, reverse=True):
        button.click()
        scale = button.text.split()[0]
        wait(opened, lambda d, scale=scale: d.execute_script(script, figure) == [scale, scale])
