"""Shows in a notebook a chart of a page that snug wrote (`snug plan --html`, a run's or a lab's report.html).

The pages keep their charts as SVG whose colours stand in the page's style, and the names of the colours
beside the picture. A picture that is to stand alone needs both inside.
SPDX-License-Identifier: Apache-2.0
"""
import html
import pathlib
import re

ROW = 22  # height of a line of names below the picture, in units of the picture


def chart(page, name=""):
    """The first chart of `page` whose title has `name` in it, as a picture for a notebook."""
    from IPython.display import SVG

    return SVG(standalone(pathlib.Path(page).read_text(encoding="utf-8"), name))


def standalone(text, name=""):
    """The same as SVG text; ValueError where the page has no such chart."""
    charts = list(re.finditer(r"<svg\b([^>]*)>(.*?)</svg>", text, re.S))
    titles = [title(*found.groups()) for found in charts]
    number = next((i for i, known in enumerate(titles) if name.lower() in known.lower()), None)
    if number is None:
        raise ValueError(f"the page has no chart {name!r}; it has {titles}")
    attributes, body = charts[number].groups()
    end = charts[number + 1].start() if number + 1 < len(charts) else len(text)
    left, top, width, height = (float(n) for n in re.search(r'viewBox="([^"]*)"', attributes)[1].split())
    names, rows = legend(text[charts[number].end() : end], width, top + height)
    head = text[: charts[0].start()]  # a chart may bring a style of its own
    style = "".join(re.findall(r"<style>(.*?)</style>", head, re.S))
    box = f'viewBox="{left:g} {top:g} {width:g} {height + rows * ROW:g}"'
    attributes = re.sub(r'\s+(xmlns|width|height|viewBox)="[^"]*"', "", attributes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}{attributes}>'
        f"<style>{style} svg{{background:var(--bg);margin:0;max-width:none}}</style>{body}{names}</svg>"
    )


def title(attributes, body):
    found = re.search(r'aria-label="([^"]*)"', attributes) or re.match(r"\s*<title>([^<]*)</title>", body)
    return html.unescape(found[1]) if found else ""


def legend(behind, width, y):
    """The colours' names that stand behind a chart in its page: as SVG, and how many lines that takes."""
    keys = re.findall(r'class="key"[^>]*><i style="background:([^"]*)"></i>([^<]*)<', behind)
    out, x, rows = [], 70, 1
    for colour, name in keys:
        room = 40 + 7.5 * len(html.unescape(name))
        if x + room > width:
            x, rows = 70, rows + 1
        base = y + rows * ROW - 6
        out.append(
            f'<rect x="{x:g}" y="{base - 10:g}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{x + 15:g}" y="{base:g}">{name}</text>'
        )
        x += room
    return "".join(out), rows if keys else 0
