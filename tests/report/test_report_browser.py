"""The page in a real browser, from file://, as a reader opens it."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = [pytest.mark.slow, pytest.mark.browser]

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
    return open_page(browser, reported, 12)  # four encodings in each of three figures


def open_page(browser: webdriver.Chrome, report: SimpleNamespace, entries: int) -> webdriver.Chrome:
    """The page of a report once its legends have so many entries."""
    browser.get(report.index.as_uri())
    WebDriverWait(browser, 30).until(
        lambda driver: (
            len(driver.find_elements(By.CSS_SELECTOR, ".plot .legend .traces")) == entries
        )
    )
    return browser


def traces(driver: webdriver.Chrome, plot: str) -> list[dict[str, Any]]:
    script = "return document.getElementById(arguments[0])._fullData.map(t => ({name: t.name,"
    script += " visible: t.visible, mode: t.mode || '', points: t.x.length}))"
    return driver.execute_script(script, plot)


def visible(driver: webdriver.Chrome, plot: str, name: str) -> set[Any]:
    return {trace["visible"] for trace in traces(driver, plot) if trace["name"] == name}


def requests(driver: webdriver.Chrome) -> list[str]:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [
        params["request"]["url"] for params in sent if params["documentURL"] == driver.current_url
    ]


def legend_item(driver: webdriver.Chrome, plot: str, name: str) -> WebElement:
    items = driver.find_elements(By.CSS_SELECTOR, f"#{plot} .legend .traces")
    item = next(item for item in items if name in item.text)
    return item.find_element(By.CSS_SELECTOR, ".legendtoggle")


def test_the_page_opens_from_a_file_without_network_or_complaint(
    opened: webdriver.Chrome,
) -> None:
    assert [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert [url for url in requests(opened) if not url.startswith("data:")] == [opened.current_url]


@pytest.mark.parametrize("plot", ["perplexity_by_length", "loss_by_position"])
def test_both_plots_show_every_series_in_every_panel(opened: webdriver.Chrome, plot: str) -> None:
    found = traces(opened, plot)
    lines = [trace for trace in found if trace["mode"] == "lines+markers"]
    assert len(lines) == 7  # four encodings at L = 64, three at L = 128
    assert len(found) == 14  # and a band between two seeds for each of them
    drawn = opened.find_elements(By.CSS_SELECTOR, f"#{plot} .scatterlayer .trace .lines path")
    assert len(drawn) == len(found)
    assert not opened.find_elements(By.CSS_SELECTOR, f"#{plot} [data-title^='Share']")


@pytest.mark.parametrize("plot", ["perplexity_by_length", "loss_by_position"])
def test_a_legend_item_hides_and_shows_its_series(opened: webdriver.Chrome, plot: str) -> None:
    assert visible(opened, plot, "rope") == {True}
    opened.execute_script("arguments[0].scrollIntoView()", legend_item(opened, plot, "rope"))
    for state in ("legendonly", True):
        legend_item(opened, plot, "rope").click()
        WebDriverWait(opened, 10).until(
            lambda driver, state=state: visible(driver, plot, "rope") == {state}
        )
        assert visible(opened, plot, "alibi") == {True}


def test_tables_are_visible_and_wide_ones_do_not_widen_the_page(opened: webdriver.Chrome) -> None:
    tables = opened.find_elements(By.CSS_SELECTOR, "table.extrapolation")
    assert len(tables) == 2
    assert all(table.is_displayed() and "sinusoidal" in table.text for table in tables)
    opened.set_window_size(500, 1600)
    fits = "return document.documentElement.scrollWidth <= window.innerWidth"
    WebDriverWait(opened, 10).until(lambda driver: driver.execute_script(fits))
    opened.set_window_size(1280, 1600)


def test_without_javascript_figures_are_drawn_and_tables_stand(
    browser: webdriver.Chrome, reported: SimpleNamespace
) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(reported.index.as_uri())
    stills = browser.find_elements(By.CSS_SELECTOR, "img.still")
    assert len(stills) == 4
    assert all(still.is_displayed() and still.size["width"] > 500 for still in stills)
    assert not any(plot.is_displayed() for plot in browser.find_elements(By.CSS_SELECTOR, ".plot"))
    assert "What not to conclude" in browser.find_element(By.TAG_NAME, "body").text
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_on_paper_the_drawn_figures_stand_in(opened: webdriver.Chrome) -> None:
    stills = opened.find_elements(By.CSS_SELECTOR, "img.still")
    assert not any(still.is_displayed() for still in stills)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(still.is_displayed() for still in stills)
    assert not any(plot.is_displayed() for plot in opened.find_elements(By.CSS_SELECTOR, ".plot"))
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_published_curve_is_hollow_dashed_and_toggled_by_itself(
    browser: webdriver.Chrome, various: SimpleNamespace
) -> None:
    plot, name = "perplexity_relative", "alibi (published)"
    open_page(browser, various, 9)  # two encodings in four figures, and the published curve
    script = "return document.getElementById(arguments[0])._fullData"
    script += ".filter(t => t.name == arguments[1]).map(t => [t.line.dash, t.marker.symbol])"
    assert browser.execute_script(script, plot, name) == [["4px,3px", "circle-open"]]
    browser.execute_script("arguments[0].scrollIntoView()", legend_item(browser, plot, name))
    legend_item(browser, plot, name).click()
    WebDriverWait(browser, 10).until(lambda driver: visible(driver, plot, name) == {"legendonly"})
    assert visible(browser, plot, "alibi") == {True}


def test_the_heat_map_is_drawn_and_told_where_the_pointer_is(
    browser: webdriver.Chrome, various: SimpleNamespace
) -> None:
    open_page(browser, various, 9)
    plot = "loss_by_position_heat"
    (drawn,) = browser.find_elements(By.CSS_SELECTOR, f"#{plot} .heatmaplayer image")
    assert drawn.size["width"] > 300
    assert "above the best" in browser.find_element(By.CSS_SELECTOR, f"#{plot} .cbtitle").text
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawn)
    ActionChains(browser).move_to_element_with_offset(drawn, 60, 15).perform()  # the second row
    told = WebDriverWait(browser, 10).until(
        lambda driver: driver.find_element(By.CSS_SELECTOR, f"#{plot} .hoverlayer").text
    )
    assert "rope" in told and "above the best" in told


def test_cost_has_bars_in_both_directions(
    browser: webdriver.Chrome, various: SimpleNamespace
) -> None:
    open_page(browser, various, 9)
    for bar in ("xerror", "yerror"):
        selector = f"#cost_against_quality .errorbar .{bar}"
        assert len(browser.find_elements(By.CSS_SELECTOR, selector)) == 2


def test_accuracies_stand_in_a_panel_for_each_task(
    browser: webdriver.Chrome, tasks: SimpleNamespace
) -> None:
    open_page(browser, tasks, 2)
    plot = browser.find_element(By.ID, "accuracy_by_length")
    assert all(
        f"{task}, trained at L = 64" in plot.text for task in ("task_copy", "task_even_pairs")
    )
    assert not browser.find_elements(By.ID, "perplexity_by_length")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#tasks table")) == 2


def test_the_bounds_of_bases_are_marked(browser: webdriver.Chrome, bases: SimpleNamespace) -> None:
    open_page(browser, bases, 8)  # three encodings in two figures, and two lengths
    text = browser.find_element(By.ID, "perplexity_by_base").text
    assert "bound for L: " in text and "bound for 2L: " in text
    shapes = browser.find_elements(By.CSS_SELECTOR, "#perplexity_by_base .shapelayer path")
    assert len(shapes) == 2


def test_a_button_changes_the_scale_of_every_panel(opened: webdriver.Chrome) -> None:
    plot = "perplexity_by_length"
    script = "const l = document.getElementById(arguments[0])._fullLayout;"
    script += "return [l.yaxis.type, l.yaxis2.type]"
    buttons = opened.find_elements(By.CSS_SELECTOR, f"#{plot} .updatemenu-button")
    opened.execute_script("arguments[0].scrollIntoView()", buttons[0])
    for button, scale in zip(reversed(buttons), ("log", "linear"), strict=True):
        button.click()
        WebDriverWait(opened, 10).until(
            lambda driver, scale=scale: driver.execute_script(script, plot) == [scale, scale]
        )
