"""The page of an inspection in a real browser, opened from file://."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from posenc.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.browser]

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1280,1600")
MODEL = ["model.width=32", "model.heads=4", "train_length=16"]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, "--disable-background-networking", f"--user-data-dir={tmp_path / 'user'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


def test_every_figure_is_drawn_on_the_page(browser: webdriver.Chrome, tmp_path: Path) -> None:
    assert main(["inspect", "encoding=sinusoidal,t5", *MODEL, f"outputs_dir={tmp_path}"]) == 0
    folder = tmp_path / "scratch" / "inspect"
    figures = {file.stem for file in folder.glob("*.svg")}
    browser.get((folder / "index.html").as_uri())
    all_drawn = "return [...document.querySelectorAll('figure')].every(f => f.views?.length)"
    WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(all_drawn))
    elements = browser.find_elements(By.CSS_SELECTOR, "figure")
    assert {element.get_attribute("id") for element in elements} == figures
    heat_maps = browser.find_elements(By.CSS_SELECTOR, "#position_vectors .chart image")
    assert len(heat_maps) == 1  # t5 has no position vectors
    assert browser.find_elements(By.CSS_SELECTOR, "#wavelengths .mark-rule.role-mark line")
    assert browser.get_log("browser") == []
    assert "Properties of t5" in browser.find_element(By.TAG_NAME, "nav").text
