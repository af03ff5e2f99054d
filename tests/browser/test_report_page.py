"""The report in a real browser: Debian's chromium without a window, the page opened as a file. Records here are fake."""

import json
import shutil

import pytest

from fastdqn.report import write_report
from tests.fake_records import write_fake_records

webdriver = pytest.importorskip("selenium.webdriver", reason="needs the package selenium: pip install selenium")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver: apt-get install chromium chromium-driver"
)

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)
LAPTOP, PHONE = 1400, 390
LADDER = "record-2026-11-15-fake-ladder-snake-2-cores"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_fake_records(folder / "records")
    return write_report([str(folder / "records")], str(folder / "report.html")).as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium, page):
    """The page as it is opened on a laptop in daylight."""
    open_page(chromium, page)
    return chromium


def open_page(driver, page, width=LAPTOP, scheme="light"):
    features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    load(driver, page)
    driver.execute_script("try { localStorage.clear(); } catch (error) {} delete document.documentElement.dataset.theme;")


def load(driver, address):
    """Chromium's driver comes back early now and then, with half of the page read."""
    driver.get(address)
    WebDriverWait(driver, 30).until(lambda _: driver.execute_script("return document.readyState") == "complete")


def find_all(root, selector):
    return root.find_elements(By.CSS_SELECTOR, selector)


def find(root, selector):
    return root.find_element(By.CSS_SELECTOR, selector)


def visible_svg(figure):
    (svg,) = [svg for svg in find_all(figure, 'svg[role="img"]') if svg.is_displayed()]
    return svg


def into_view(driver, element):
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def click(driver, element):
    into_view(driver, element).click()


def column(driver, table, index):
    """Texts of one column of the rows that are shown, top to bottom; of a cell only its first line."""
    rows = [row for row in find_all(table, "tbody tr") if row.is_displayed()]
    return [find_all(row, "th, td")[index].text.split("\n")[0] for row in rows]


def as_numbers(texts):
    return [float(text.replace(",", "")) for text in texts if text != "–"]


def test_it_loads_without_a_word_in_the_console(browser):
    assert find(browser, "h1").text.startswith("2.9× faster than the textbook DQN")
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert len([svg for svg in find_all(browser, 'svg[role="img"]') if svg.is_displayed()]) >= 12


def test_nothing_is_fetched(chromium, page):
    chromium.get_log("performance")  # what earlier tests left there
    open_page(chromium, page)
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert page in asked
    assert [address for address in asked if address != page and not address.startswith("data:")] == []


def test_a_head_sorts_and_turns_around(browser):
    table = find(browser, f"#{LADDER}-table table")
    head = find_all(table, "thead th")[1]
    assert head.text.startswith("steps/s")
    before = column(browser, table, 1)
    assert as_numbers(before) != sorted(as_numbers(before), reverse=True)

    click(browser, find(head, "button"))
    falling = column(browser, table, 1)
    assert head.get_attribute("aria-sort") == "descending"
    assert as_numbers(falling) == sorted(as_numbers(before), reverse=True)
    assert falling[-1] == "–"  # skipped: stays last

    click(browser, find(head, "button"))
    rising = column(browser, table, 1)
    assert head.get_attribute("aria-sort") == "ascending"
    assert as_numbers(rising) == sorted(as_numbers(before))
    assert rising[-1] == "–"
    assert column(browser, table, 0)[0] == "textbook"  # whole rows have moved


def test_a_head_sorts_by_keyboard_and_words_by_letter(browser):
    table = find(browser, f"#{LADDER}-table table")
    heads = find_all(table, "thead th")
    index = next(index for index, head in enumerate(heads) if head.text.startswith("learning"))
    into_view(browser, find(heads[index], "button")).send_keys(Keys.ENTER)
    words = [text.split(" ", 1)[1] for text in column(browser, table, index)]  # without the glyph
    assert heads[index].get_attribute("aria-sort") == "ascending"
    assert words == sorted(words)
    into_view(browser, find(heads[0], "button")).send_keys(Keys.SPACE)
    assert column(browser, table, 0)[:2] == ["textbook", "+ inference_mode"]  # the order of the ladder again
    assert heads[index].get_attribute("aria-sort") == "none"


def test_filters_hide_rows(browser):
    block = find(browser, f"#{LADDER}-table")
    into_view(browser, block)
    assert find(block, "output").text == "11 rungs"
    find(block, "input").send_keys("REPLAY")
    assert column(browser, block, 0) == ["+ array_replay", "default without array_replay"]
    assert find(block, "output").text == "2 of 11 rungs"
    find(block, "input").send_keys(Keys.BACKSPACE * 6)
    speed, learning = (Select(element) for element in find_all(block, "select"))
    speed.select_by_visible_text("slower")
    assert column(browser, block, 0) == ["+ fused_optimizer", "default without array_replay"]
    learning.select_by_visible_text("undecided")
    assert column(browser, block, 0) == ["+ fused_optimizer"]
    speed.select_by_visible_text("all")
    learning.select_by_visible_text("all")
    assert find(block, "output").text == "11 rungs"


@pytest.mark.parametrize("width", [LAPTOP, 1024, 768, PHONE, 320])
def test_nothing_sticks_out(chromium, page, width):
    """Neither at first sight nor with everything unfolded."""
    open_page(chromium, page, width)
    fits = "const page = document.scrollingElement; return [page.scrollWidth, innerWidth]"
    needed, there = chromium.execute_script(fits)
    assert there == width
    assert needed <= there
    chromium.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    chromium.execute_script("document.querySelectorAll('[hidden]').forEach((one) => { one.hidden = false; })")
    needed, there = chromium.execute_script(fits)
    assert needed <= there


def test_on_a_laptop_the_ladder_needs_no_scrolling(browser):
    scroll = find(browser, f"#{LADDER}-table .scroll")
    assert browser.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", scroll)


@pytest.mark.parametrize("width", [LAPTOP, PHONE])
def test_letters_in_charts_are_large_enough_to_read(chromium, page, width):
    """px on the screen of the smallest text of any chart that is shown."""
    open_page(chromium, page, width)
    smallest = chromium.execute_script("""
        const texts = [...document.querySelectorAll('.chart svg text')].filter((text) => text.getClientRects().length);
        return Math.min(...texts.map((text) => {
            const svg = text.ownerSVGElement;
            return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.dataset.width;
        }));
    """)
    assert smallest >= 10


@pytest.mark.parametrize("width", [LAPTOP, PHONE])
def test_no_text_of_a_chart_is_cut_off(chromium, page, width):
    open_page(chromium, page, width)
    outside = chromium.execute_script("""
        const texts = [...document.querySelectorAll('.chart svg text')].filter((text) => text.getClientRects().length);
        return texts.filter((text) => {
            const own = text.getBoundingClientRect(), block = text.closest('.block').getBoundingClientRect();
            return own.left < block.left || own.right > block.right;
        }).map((text) => text.textContent);
    """)
    assert outside == []


def background(driver):
    return driver.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_dark_follows_the_system_and_the_button_turns_it(chromium, page):
    open_page(chromium, page, scheme="light")
    light = background(chromium)
    find(chromium, "button.theme").click()
    dark = background(chromium)
    assert dark != light
    open_page(chromium, page, scheme="dark")
    assert background(chromium) == dark
    find(chromium, "button.theme").click()
    assert background(chromium) == light


def test_every_link_within_the_page_leads_somewhere(browser):
    links = [link.get_attribute("href").split("#")[1] for link in find_all(browser, 'a[href^="#"]')]
    assert len(links) > 20
    lost = browser.execute_script("return arguments[0].filter((id) => !document.getElementById(id))", links)
    assert lost == []


def test_every_link_to_a_record_opens_a_file(browser):
    files = {link.get_attribute("href") for link in find_all(browser, 'a[href$="record.json"]')}
    assert len(files) == 9
    for address in files:
        load(browser, address)
        assert '"version": 1' in browser.find_element(By.TAG_NAME, "body").text


def test_the_command_can_be_copied(browser):
    buttons = find_all(browser, "button.copy")
    assert len(buttons) == 9
    assert buttons[0].get_attribute("data-copy").startswith("fastdqn bench ladder snake")
    click(browser, buttons[0])
    WebDriverWait(browser, 10).until(lambda _: buttons[0].text != "copy")
    assert buttons[0].text == "copied ✓"


def test_pointing_at_a_bar_tells_its_numbers(browser):
    svg = visible_svg(find(browser, f"#{LADDER}-speed"))
    tip = find(browser, "#tip")
    assert not tip.is_displayed()
    bar = find_all(svg, ".mark")[3]
    into_view(browser, svg)
    ActionChains(browser).move_to_element(find(bar, ".bar")).perform()
    assert tip.is_displayed()
    said = tip.text.split("\n")
    assert said[:3] == ["+ array_replay", "2,890 steps/s (2,818 to 2,962)", "change 1.46× (1.42 to 1.50×)"]


def test_arrow_keys_walk_through_a_chart(browser):
    svg = visible_svg(find(browser, f"#{LADDER}-speed"))
    browser.execute_script("arguments[0].focus()", into_view(browser, svg))
    svg.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert find(browser, "#tip").text.startswith("+ inference_mode")  # after the ceiling and the textbook
    svg.send_keys(Keys.ESCAPE)
    assert not find(browser, "#tip").is_displayed()


def test_curves_by_steps_and_by_minutes(browser):
    figure = find(browser, f"#{LADDER}-curves")
    steps, minutes = find_all(figure, '[role="tab"]')
    assert "Score against environment steps" in find(visible_svg(figure), "desc").get_attribute("textContent")
    click(browser, minutes)
    assert "Score against minutes of training" in find(visible_svg(figure), "desc").get_attribute("textContent")
    assert (steps.get_attribute("aria-selected"), minutes.get_attribute("aria-selected")) == ("false", "true")
    minutes.send_keys(Keys.ARROW_LEFT)
    assert "Score against environment steps" in find(visible_svg(figure), "desc").get_attribute("textContent")


def test_a_button_shows_and_hides_a_curve(browser):
    figure = find(browser, f"#{LADDER}-curves")
    shown = lambda: [line for line in find_all(visible_svg(figure), ".curve") if line.is_displayed()]  # noqa: E731
    assert len(shown()) == 2
    button = find_all(figure, ".toggle")[1]
    click(browser, button)
    assert button.get_attribute("aria-pressed") == "true"
    assert len(shown()) == 3
    click(browser, button)
    assert len(shown()) == 2


def test_without_scripts_everything_is_there(chromium, page):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(chromium, page)
        assert all(panel.is_displayed() for panel in find_all(chromium, '[role="tabpanel"]'))
        assert not any(one.is_displayed() for one in find_all(chromium, ".filters, .copy, .theme"))
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
