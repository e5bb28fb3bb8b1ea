# SPDX-License-Identifier: Apache-2.0
"""Looks at the report pages of lab runs with a real browser: that they need no network and raise no error, draw all
their charts, fit a phone, are dark, light and printable, can be used by keyboard alone, have no serious fault for
those who do not see them, and that no text in them becomes anything but text.

usage: check_pages.py BROWSER FOLDER, with planned/, measured/ and hostile/ in FOLDER, each with a report.html."""

import base64
import contextlib
import hashlib
import json
import pathlib
import sys
import time

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

LARGEST_PAGE = 1_500_000
MOST_PAGES = {"planned": 8, "measured": 5}  # of 13 rows, a sweep and a search; of 5 rows with all that they left
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}

faults = []


def expect(holds, what):
    if not holds:
        faults.append(what)
        print("FAILED:", what)


class Visit:
    """One page as opened, with everything it asked for or complained about."""

    def __init__(self, browser, path, **context):
        self.name = path.parent.name
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self.heard)
        self.page.goto(path.as_uri())

    def heard(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open_rows(self):
        self.page.evaluate("document.querySelectorAll('details').forEach((row) => { row.open = true; })")

    def luminance(self):
        colour = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        red, green, blue = (float(part) / 255 for part in colour.strip("rgba()").split(",")[:3])
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@contextlib.contextmanager
def visit(browser, path, **context):
    one = Visit(browser, path, **context)
    try:
        yield one
    finally:
        one.context.close()
    strangers = [url for url in one.requests if url != path.as_uri() and not url.startswith("data:")]
    expect(not strangers, f"{one.name}: asks for nothing but itself: {strangers[:3]}")
    expect(not one.complaints, f"{one.name}: no errors: {one.complaints[:3]}")


def check_script_hash(path):
    """The policy names the script that is there: else no button works."""
    text = path.read_text(encoding="utf-8")
    script = text.rsplit("<script>", 1)[1].rsplit("</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    expect(f"'sha256-{digest}'" in text, f"{path.parent.name}: the policy names the script, {digest}")


def check_charts(browser, path):
    with visit(browser, path, viewport=DESK) as v:
        expect(path.stat().st_size < LARGEST_PAGE, f"{v.name}: {path.stat().st_size} bytes")
        v.open_rows()
        width = v.page.evaluate("document.documentElement.scrollWidth")
        expect(width <= DESK["width"], f"{v.name}: {width} px wide on a desk's screen")
        empty = v.page.evaluate(
            "[...document.querySelectorAll('svg')].filter((svg) => !svg.closest('.small-only')).filter((svg) => {"
            "const box = svg.getBoundingClientRect();"
            "return box.width < 200 || box.height < 100; }).length"
        )
        expect(empty == 0, f"{v.name}: {empty} charts without a size")
        counts = {
            what: v.page.locator(selector).count()
            for what, selector in {
                "timelines": "details.row svg:not(.chart)",
                "bars": ".bars .bar",
                "sweep": ".sweep .wide svg",
                "scatter": ".wide svg[role=group]",
                "losses": "details.row .wide svg.chart",
            }.items()
        }
        wanted = {
            "planned": {"timelines": 12, "bars": 12, "sweep": 4, "scatter": 1, "losses": 0},
            "measured": {"timelines": 4, "bars": 2, "sweep": 0, "scatter": 1, "losses": 1},
            "hostile": {"timelines": 12, "bars": 7, "sweep": 4, "scatter": 1, "losses": 0},
        }[v.name]
        expect(counts == wanted, f"{v.name}: charts are {counts}, not {wanted}")
        table = v.page.locator("div.scroll:has(> table.main)")
        expect(
            v.name == "hostile" or table.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1"),
            f"{v.name}: the table fits a desk's screen",
        )


def check_phone(browser, path):
    with visit(browser, path, viewport=PHONE) as v:
        for state in ("closed", "open"):
            width = v.page.evaluate("document.documentElement.scrollWidth")
            expect(width <= PHONE["width"], f"{v.name}: {width} px wide on a phone, rows {state}")
            v.open_rows()
        small = v.page.evaluate(
            "[...document.querySelectorAll('svg')].filter((svg) => svg.getBoundingClientRect().width > 0).map((svg) =>"
            "Math.min(...[...svg.querySelectorAll('text')].map((text) => parseFloat(getComputedStyle(text).fontSize)))"
            "* svg.getBoundingClientRect().width / svg.viewBox.baseVal.width).filter((size) => size < 11)"
        )
        expect(not small, f"{v.name}: {len(small)} charts with letters under 11 px on a phone: {small[:3]}")
        sideways = v.page.evaluate(
            "[...document.querySelectorAll('svg, .timeline')].map((e) => e.closest('.scroll') || e)"
            ".filter((e) => e.getBoundingClientRect().width > 0 && (e.scrollWidth > e.clientWidth + 1"
            " || e.getBoundingClientRect().right > innerWidth)).length"
        )
        expect(sideways == 0, f"{v.name}: {sideways} charts have to be moved sideways on a phone")
        names = v.page.evaluate(
            "[...document.querySelectorAll('.timeline')].map((e) => Math.min(...[...e.querySelectorAll('.scale span')]"
            ".map((text) => parseFloat(getComputedStyle(text).fontSize)))).filter((size) => size < 11).length"
        )
        expect(names == 0, f"{v.name}: {names} timelines with letters under 11 px")
        peaks = v.page.evaluate(
            "[...document.querySelectorAll('.fit table')]"
            ".filter((table) => table.rows[0].cells[1].getBoundingClientRect().right > innerWidth).length"
        )
        expect(v.name == "hostile" or peaks == 0, f"{v.name}: {peaks} tables of tries hide their peak on a phone")
        hidden = v.page.evaluate(
            "[...document.querySelectorAll('table.main td:not(.none)')].filter((cell) =>"
            "cell.getBoundingClientRect().right > innerWidth + 1).length"
        )
        expect(hidden == 0, f"{v.name}: {hidden} cells beyond a phone's edge")


def check_themes(browser, path):
    with visit(browser, path, viewport=DESK, color_scheme="dark") as v:
        expect(v.luminance() < 0.2, f"{v.name}: dark where the person wants it dark")
        v.page.click("#theme")
        expect(v.luminance() > 0.8, f"{v.name}: the button makes it light")
        v.page.click("#theme")
        expect(v.luminance() < 0.2, f"{v.name}: and dark again")
        v.page.emulate_media(media="print")
        expect(v.luminance() > 0.9, f"{v.name}: paper is light")
        heights = v.page.evaluate(
            "[...document.querySelectorAll('main > details.row .body')].map((body) => body.getBoundingClientRect().height)"
        )
        expect(heights and min(heights) > 20, f"{v.name}: what is folded away is printed")
        expect(not v.page.locator("#theme").is_visible(), f"{v.name}: no buttons on paper")


def check_paper(browser, path):
    """Several rows a page."""
    with visit(browser, path, viewport=DESK) as v:
        paper = v.page.pdf(format="A4")
        expect(len(paper) > 10_000, f"{v.name}: prints")
        pages = paper.count(b"/Type /Page\n")
        expect(0 < pages <= MOST_PAGES[v.name], f"{v.name}: {pages} pages of paper")


def focused(page):
    return page.evaluate(
        "(() => { const e = document.activeElement; return e === document.body ? '' :"
        "e.tagName + '#' + [...document.querySelectorAll('*')].indexOf(e); })()"
    )


def check_keyboard(browser, path):
    with visit(browser, path, viewport=DESK) as v:
        page = v.page
        page.keyboard.press("Tab")
        expect(page.evaluate("document.activeElement.className") == "skip", f"{v.name}: the skip link comes first")
        page.locator("details.row summary").first.focus()
        page.keyboard.press("Enter")
        expect(page.evaluate("document.querySelector('details.row').open"), f"{v.name}: Enter opens a row")
        page.click("#unfold")
        still_closed = page.evaluate("document.querySelectorAll('details.row:not([open])').length")
        expect(still_closed == 0, f"{v.name}: one button opens all rows")
        page.evaluate("document.activeElement.blur(); window.getSelection().removeAllRanges();")
        page.locator("#unfold").focus()
        reached = set()
        for _ in range(1500):
            page.keyboard.press("Tab")
            where = focused(page)
            if not where or where in reached:
                break
            reached.add(where)
        for what, selector in (("row", "details.row > summary"), ("copy button", "button.copy"), ("link", ".main a")):
            wanted = page.evaluate(
                "(s) => [...document.querySelectorAll(s)].map((e) => e.tagName + '#' +"
                "[...document.querySelectorAll('*')].indexOf(e))",
                selector,
            )
            missed = [one for one in wanted if one not in reached]
            expect(wanted and not missed, f"{v.name}: keyboard reaches every {what}: {len(missed)} of {len(wanted)} not")


def wait_until(page, condition, argument=None):
    """Asked from here: the page's policy lets nothing inside it evaluate a text again and again."""
    end = time.monotonic() + 10
    while not page.evaluate(condition, argument):
        if time.monotonic() > end:
            expect(False, f"comes to be: {condition}")
            return
        page.wait_for_timeout(20)


def check_buttons(browser, path):
    with visit(browser, path, viewport=DESK) as v:
        page = v.page
        link = page.locator(".main a").nth(1)
        row = link.get_attribute("href")[1:]
        link.click()
        wait_until(page, "(id) => document.getElementById(id).open", row)
        copy = page.locator(f"[id='{row}'] button.copy").first
        copy.click()
        wait_until(page, "document.getElementById('said').textContent === 'Copied'")
        keys = "[...document.querySelectorAll('table.main tbody td[data-label=\"Step time\"]')].map((e) => Number(e.dataset.key))"
        page.locator("thead button", has_text="Step time").click()
        up = page.evaluate(keys)
        page.locator("thead button", has_text="Step time").click()
        down = page.evaluate(keys)
        expect(up == sorted(up) and down == sorted(down, reverse=True), f"{v.name}: sorts by time: {up}, {down}")
        with page.expect_download(timeout=5000) as download:
            page.click("#save")
        figures = json.loads(pathlib.Path(download.value.path()).read_text(encoding="utf-8"))
        expect(figures == json.loads((path.parent / "report.json").read_text()), f"{v.name}: the figures are report.json")


def check_for_all(browser, path, scheme):
    """axe-core's rules; what it calls serious or worse shuts people out."""
    with visit(browser, path, viewport=DESK, color_scheme=scheme) as v:
        v.open_rows()
        found = Axe().run(v.page).response["violations"]
        for one in found:
            if one["impact"] in ("serious", "critical"):
                where = [node["html"][:120] for node in one["nodes"][:2]]
                expect(False, f"{v.name}, {scheme}: {one['id']} ({len(one['nodes'])}): {one['help']} {where}")


def check_hostile(browser, path):
    with visit(browser, path, viewport=DESK) as v:
        v.open_rows()
        expect("owned" not in v.page.title().split("document.title")[0], "hostile: the title is text")
        expect(v.page.evaluate("document.title").startswith("snug lab: </script>"), "hostile: no script ran")
        expect(v.page.locator("img").count() == 0, "hostile: no element came out of a text")
        expect(v.page.locator("script").count() == 2, "hostile: no script but the page's own")
        expect(v.page.locator("h3 b, h3 bdi > *").count() == 0, "hostile: an id is text")
        seen = v.page.locator("h1").inner_text()
        expect("<img src=x onerror=" in seen and "<!-- ]]>" in seen, "hostile: what was written is shown")
        parsed = v.page.evaluate("JSON.parse(document.getElementById('figures').textContent).rows.length")
        expect(parsed == 17, f"hostile: the figures can be read: {parsed} rows")


def check_without_script(browser, path):
    with visit(browser, path, viewport=DESK, java_script_enabled=False) as v:
        expect(v.page.locator("table.main tbody tr").count() > 3, f"{v.name}: a table without a script")
        expect(not v.page.locator("#theme").is_visible(), f"{v.name}: no buttons that do nothing")
        v.page.locator("details.row > summary").first.click()
        expect(v.page.locator("details.row .body").first.is_visible(), f"{v.name}: rows open without a script")


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    pages = {name: folder / name / "report.html" for name in ("planned", "measured", "hostile")}
    started = time.monotonic()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for page in pages.values():
            check_script_hash(page)
            check_charts(browser, page)
            check_phone(browser, page)
        check_themes(browser, pages["planned"])
        check_paper(browser, pages["planned"])
        check_paper(browser, pages["measured"])
        check_keyboard(browser, pages["measured"])
        check_buttons(browser, pages["planned"])
        check_hostile(browser, pages["hostile"])
        check_without_script(browser, pages["measured"])
        for name, scheme in (("planned", "light"), ("measured", "dark")):
            check_for_all(browser, pages[name], scheme)
        browser.close()
    print(f"{len(faults)} faults, {time.monotonic() - started:.1f} s")
    return 1 if faults else 0


sys.exit(main())
