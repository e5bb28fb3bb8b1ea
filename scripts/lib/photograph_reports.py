# SPDX-License-Identifier: Apache-2.0
"""photograph_reports.py BROWSER FOLDER PICTURES: of the reports FOLDER/litgpt-single-plan and FOLDER/fsdp-sweep-plan, as
a desk's screen shows them, the pictures PICTURES/lab-report.webp (the page's beginning), lab-row.webp (a row, opened, on
a dark page) and lab-sweep.webp (a sweep)."""
import base64
import pathlib
import sys

from playwright.sync_api import sync_playwright

WIDTH = 1280
QUALITY = 80  # of WebP: text is sharp, and a picture has 50 to 120 kB


def main():
    program, folder, pictures = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    single, sweep = folder / "litgpt-single-plan/report.html", folder / "fsdp-sweep-plan/report.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        with_page(browser, single, "light", lambda page: take(page, pictures / "lab-report.webp", "h1", 1330))
        with_page(browser, single, "dark", lambda page: take_row(page, pictures / "lab-row.webp", "ls08-13b-adamw"))
        with_page(browser, sweep, "light", lambda page: take(page, pictures / "lab-sweep.webp", "#sweeps", 1240))
        browser.close()


def with_page(browser, path, scheme, act):
    context = browser.new_context(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    act(page)
    context.close()


def take_row(page, path, row):
    page.evaluate(f"document.getElementById('row-{row}').open = true")
    take(page, path, f"#row-{row}", 760)


def take(page, path, selector, height):
    """`height` lines of the page from where `selector` begins, over its whole width."""
    top = page.locator(selector).first.evaluate("(e) => e.getBoundingClientRect().top + window.scrollY")
    clip = {"x": 0, "y": max(top - 12, 0), "width": WIDTH, "height": height, "scale": 1}
    shot = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot", {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(shot["data"]))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
