"""The page of a report in a real browser, opened from file://."""

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
def page(browser: webdriver.Chrome, trial_report: SimpleNamespace) -> webdriver.Chrome:
    """The browser with the page of `trial_report`; earlier performance logs are discarded."""
    browser.get_log("performance")
    return open_page(browser, trial_report)


def open_page(browser: webdriver.Chrome, report: SimpleNamespace) -> webdriver.Chrome:
    """Open the page of a report and wait until all charts are drawn."""
    browser.get(report.index.as_uri())
    WebDriverWait(browser, 60).until(
        lambda driver: driver.execute_script(
            "return [...document.querySelectorAll('figure')].every(f => f.views?.length)"
        )
    )
    return browser


def marks(driver: webdriver.Chrome, figure: str, kind: str) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, f"#{figure} .chart .mark-{kind}.role-mark path")


def count_lines(driver: webdriver.Chrome, figure: str) -> int:
    """Return the number of lines drawn in all panels of a figure."""
    return len([mark for mark in marks(driver, figure, "line") if mark.get_attribute("d")])


def requests(driver: webdriver.Chrome) -> list[str]:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [
        params["request"]["url"] for params in sent if params["documentURL"] == driver.current_url
    ]


def legend_button(driver: webdriver.Chrome, figure: str, name: str) -> WebElement:
    """Scroll to the legend's button for a line and return it."""
    buttons = driver.find_elements(By.CSS_SELECTOR, f"#{figure} .legend button")
    button = next(button for button in buttons if button.text.strip() == name)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    return button


def wait(driver: webdriver.Chrome, condition: Any) -> Any:
    return WebDriverWait(driver, 20).until(condition)


def test_the_page_opens_from_a_file_without_network_access_or_console_messages(
    page: webdriver.Chrome,
) -> None:
    assert page.get_log("browser") == []
    assert [url for url in requests(page) if not url.startswith("data:")] == [page.current_url]


@pytest.mark.parametrize("figure", ["perplexity_by_length", "loss_by_position"])
def test_a_figure_shows_every_line_in_every_panel(page: webdriver.Chrome, figure: str) -> None:
    names = [button.text for button in page.find_elements(By.CSS_SELECTOR, f"#{figure} button")]
    assert {"sinusoidal", "rope", "alibi", "nope"} <= set(names)
    assert count_lines(page, figure) == 7  # four encodings at L = 64, three at L = 128
    bands = [mark for mark in marks(page, figure, "area") if mark.get_attribute("d")]
    assert len(bands) == 7  # between two seeds


@pytest.mark.parametrize("key", [None, Keys.SPACE])
def test_the_legend_hides_and_shows_a_line_in_all_panels(
    page: webdriver.Chrome, key: str | None
) -> None:
    figure = "perplexity_by_length"
    button = legend_button(page, figure, "rope")
    for pressed, count in (("false", 5), ("true", 7)):
        button.send_keys(key) if key else button.click()
        wait(page, lambda driver, count=count: count_lines(driver, figure) == count)
        assert button.get_attribute("aria-pressed") == pressed
        assert count_lines(page, "loss_by_position") == 7


def test_a_double_click_shows_a_line_alone_and_a_second_one_shows_all_again(
    page: webdriver.Chrome,
) -> None:
    figure = "perplexity_by_length"
    for count in (2, 7):
        ActionChains(page).double_click(legend_button(page, figure, "alibi")).perform()
        wait(page, lambda driver, count=count: count_lines(driver, figure) == count)


def test_shift_enter_does_the_same_as_a_double_click(page: webdriver.Chrome) -> None:
    figure = "perplexity_by_length"
    for count in (2, 7):
        legend_button(page, figure, "alibi").send_keys(Keys.SHIFT, Keys.ENTER)
        wait(page, lambda driver, count=count: count_lines(driver, figure) == count)


def test_wide_tables_do_not_widen_the_page(page: webdriver.Chrome) -> None:
    tables = page.find_elements(By.CSS_SELECTOR, "#results table")
    assert len(tables) == 2
    assert all(table.is_displayed() and "sinusoidal" in table.text for table in tables)
    fits = "return document.documentElement.scrollWidth <= window.innerWidth"
    widths = "return [...document.querySelectorAll('.chart svg')].map(s => s.clientWidth)"
    metrics = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wait(page, lambda driver: driver.execute_script(fits))
    wait(page, lambda driver: max(driver.execute_script(widths)) <= 390)
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_javascript_images_replace_the_charts(
    browser: webdriver.Chrome, trial_report: SimpleNamespace
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(trial_report.index.as_uri())
    stills = browser.find_elements(By.CSS_SELECTOR, "img.still")
    assert len(stills) == 4
    assert all(still.is_displayed() and still.size["width"] > 500 for still in stills)
    charts = browser.find_elements(By.CSS_SELECTOR, ".interactive")
    assert charts and not any(chart.is_displayed() for chart in charts)
    assert "Limitations" in browser.find_element(By.TAG_NAME, "body").text
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_in_print_images_replace_the_charts(page: webdriver.Chrome) -> None:
    stills = page.find_elements(By.CSS_SELECTOR, "img.still")
    charts = page.find_elements(By.CSS_SELECTOR, ".interactive")
    assert not any(still.is_displayed() for still in stills)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(still.is_displayed() for still in stills)
    assert not any(chart.is_displayed() for chart in charts)
    figures = page.find_elements(By.TAG_NAME, "figure")
    assert all(figure.size["height"] <= PRINTED_HEIGHT for figure in figures)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_in_dark_mode_the_text_of_the_page_and_its_charts_is_light(
    page: webdriver.Chrome,
) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    lightness = [
        max(map(int, re.findall(r"\d+", page.execute_script(script, selector, attribute))[:3]))
        for selector, attribute in (
            ("body", "color"),
            (".chart .role-axis-label text", "fill"),
            ("body", "backgroundColor"),
        )
    ]
    assert min(lightness[:2]) > 200 and lightness[2] < 60
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_published_curve_is_dashed_with_hollow_markers_and_can_be_hidden_alone(
    browser: webdriver.Chrome, three_seed_report: SimpleNamespace
) -> None:
    figure, name = "perplexity_relative", "alibi (published)"
    open_page(browser, three_seed_report)
    dashed = [
        mark
        for mark in marks(browser, figure, "line")
        if mark.get_attribute("stroke-dasharray") == "3,3" and mark.get_attribute("d")
    ]
    assert len(dashed) == 1
    hollow = [m for m in marks(browser, figure, "symbol") if m.get_attribute("fill") == "white"]
    assert len(hollow) == 3
    before = count_lines(browser, figure)
    legend_button(browser, figure, name).click()
    wait(browser, lambda driver: count_lines(driver, figure) == before - 1)


def tooltip(driver: webdriver.Chrome, mark: WebElement) -> str:
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(driver).move_to_element(mark).perform()
    element = wait(driver, lambda d: d.find_element(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))
    return element.text


def test_hovering_over_a_point_shows_its_numbers(page: webdriver.Chrome) -> None:
    target = marks(page, "perplexity_by_length", "symbol")[-1]
    text = tooltip(page, target)
    assert "Evaluation length (tokens)" in text and "Perplexity per token" in text
    assert "minimum and maximum over 2 seeds" in text and "81920 tokens scored" in text


def test_hovering_over_a_cell_of_the_heat_map_shows_its_numbers(
    browser: webdriver.Chrome, three_seed_report: SimpleNamespace
) -> None:
    open_page(browser, three_seed_report)
    cells = marks(browser, "loss_by_position_heat", "rect")
    assert len(cells) > 30
    text = tooltip(browser, cells[-1])
    assert "Excess loss (nats per token)" in text
    assert "rope" in text or "alibi" in text


def test_every_task_has_a_panel_and_a_table(
    browser: webdriver.Chrome, task_report: SimpleNamespace
) -> None:
    open_page(browser, task_report)
    figure = browser.find_element(By.ID, "accuracy_by_length")
    for task in ("task_copy", "task_even_pairs"):
        assert f"{task}, trained at L = 64" in figure.text
    assert not browser.find_elements(By.ID, "perplexity_by_length")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tasks table")) == 2


def test_the_bounds_on_the_base_are_labeled(
    browser: webdriver.Chrome, base_report: SimpleNamespace
) -> None:
    open_page(browser, base_report)
    text = browser.find_element(By.ID, "perplexity_by_base").text
    assert "bound for L: " in text and "bound for 2L: " in text


def test_a_button_changes_the_scale_of_every_panel(page: webdriver.Chrome) -> None:
    figure = "perplexity_by_length"
    script = "return document.getElementById(arguments[0]).views?.map(v => v.scale('y').type)"
    buttons = page.find_elements(By.CSS_SELECTOR, f"#{figure} .scales button")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", buttons[0])
    assert sorted(button.text for button in buttons) == ["linear y", "log y"]
    for button in sorted(buttons, key=lambda button: button.text, reverse=True):
        button.click()
        scale = button.text.split()[0]
        wait(page, lambda d, scale=scale: d.execute_script(script, figure) == [scale, scale])
