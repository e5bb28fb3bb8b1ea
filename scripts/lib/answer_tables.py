# SPDX-License-Identifier: Apache-2.0
"""answer_tables.py ROOT PROGRAM [--write]: the tables to fill in on docs/lab/gpu's pages, for the rows of each suite of
ROOT/recipes/lab, as PROGRAM lists them. A table's place on a page is between

    <!-- rows: SUITE, one GPU -->  (or: several GPUs)  and  <!-- end of rows -->

Rows that are recipes in the words of a training script have their settings in a table too. Without --write what differs is
printed, and the exit status is 1. Rows for four GPUs of one machine have three tables,
since the four may be spread over machines.
"""
import argparse
import functools
import json
import math
import pathlib
import re
import subprocess
import sys

ONE, SEVERAL = "one GPU", "several GPUs"
PLACE = re.compile(r"(<!-- rows: ([\w-]+), (one GPU|several GPUs) -->\n).*?(<!-- end of rows -->)", re.S)
EXPECTED = {"ok": "fits", "oom": "out of memory"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("program")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write:
        wanted = blocks(arguments.root, arguments.program)
        for page in pages(arguments.root):
            page.write_text(filled(page.read_text(encoding="utf-8"), wanted), encoding="utf-8")
    found = faults(arguments.root, arguments.program)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


def faults(root, program):
    """What of the suites is not on the pages, or no longer so."""
    wanted, found, text = blocks(root, program), [], ""
    for page in pages(root):
        now = page.read_text(encoding="utf-8")
        if filled(now, wanted) != now:
            found.append(f"gpu/{page.name}: not the suites' rows; mend: python3 scripts/lib/answer_tables.py . PROGRAM --write")
        text += now
    placed = [(match[2], match[3]) for match in PLACE.finditer(text)]
    found += [f"gpu: {suite} has no rows for {where}" for suite, where in placed if (suite, where) not in wanted]
    for suite, where in wanted:
        if (times := placed.count((suite, where))) != 1:
            found.append(f"gpu: {times} places for {suite}, {where}; give it one: <!-- rows: {suite}, {where} -->")
    return found


def pages(root):
    return sorted((root / "docs" / "lab" / "gpu").glob("*.md"))


def filled(text, wanted):
    return PLACE.sub(lambda place: place[1] + wanted.get((place[2], place[3]), "") + place[4], text)


@functools.lru_cache
def listed(root, program, *suite):
    """What `snug lab list` says, of all suites or of one."""
    command = [program, "lab", "list", *suite, "--json"]
    return json.loads(subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout)


def blocks(root, program):
    """{(suite, ONE or SEVERAL): what stands in that place}"""
    made = {}
    # Other programs' published speeds are no runs of the course.
    for name in [suite["suite"] for suite in listed(root, program) if not suite["suite"].startswith("published-")]:
        suite = listed(root, program, name)
        for where in (ONE, SEVERAL):
            rows = [row for row in suite["rows"] if (math.prod(layout(row, root)) > 1) == (where == SEVERAL)]
            searches = [group for group in suite["groups"] if group["kind"] == "search"
                        and (math.prod(layout(group["base"], root)) > 1) == (where == SEVERAL)]
            if rows or searches:
                made[name, where] = block(suite, rows, searches, root)
    return made


def layout(row, root):
    """(machines, GPUs on each): the row's own, or those of its recipe."""
    options = dict(row["options"])
    recipe = (root / options["config"]).read_text(encoding="utf-8") if "config" in options else ""

    def number(key):
        return int(options.get(key) or (re.findall(rf"^{key}: *(\d+)", recipe, re.M) or ["1"])[0])

    return number("num_nodes"), number("devices")


def block(suite, rows, searches, root):
    name, parts = suite["name"], [f"{suite['title']}: [the suite](../../../{suite['file']})."]
    models = sorted({suite["models"][row["model"]]["checkpoint"] for row in rows} - {""})
    if models:
        parts.append(shell(*[f"snug download {model.removeprefix('checkpoints/')}" for model in models]))
    parts += settings(rows, root)
    for machines, gpus in sorted({layout(row, root) for row in rows}):
        of_layout = [row for row in rows if layout(row, root) == (machines, gpus)]
        spread = [(machines, gpus)]
        if machines == 1:
            spread += [(share, gpus // share) for share in (2, 4) if gpus % share == 0 and gpus > 1]
        whole = len(of_layout) == len(suite["rows"]) and len(spread) == 1
        parts += [table(suite, of_layout, "" if whole else names(suite, of_layout), own, spread) for own in spread]
    if searches:
        parts.append(shell(f"snug lab run {name} --rows {','.join(group['id'] for group in searches)}"))
        head = ["| search | looks for | largest that fits | its memory |", "|---|---|---|---|"]
        parts.append("\n".join(head + [f"| `{group['id']}` | {group['title']} | | |" for group in searches]))
    return "\n" + "\n\n".join(parts) + "\n\n"


def settings(rows, root):
    """The rows' settings in a table of the columns that the course's scripts are compared by; [] of other rows."""
    found = [(row, script_keys(row, root)) for row in rows]
    if not found or not all("model_name" in keys for _, keys in found):
        return []
    head = ["| row | model | bs/acc | precision | optim | act_ckpt | strategy | lr | max_steps | notes |", "|" + "---|" * 10]
    lines = []
    for row, keys in found:
        batch = f"{keys['batch_size']}/{keys['accumulate_grad_batches']}"
        lora = " in 4 bits" if keys.get("use_qlora") == "true" else ""
        cells = [f"`{row['id']}`", keys["model_name"].rsplit("/", 1)[1] + lora, batch, keys["precision"], keys["optim"],
                 keys["act_ckpt"], keys["strategy"], keys["lr"], keys["max_steps"], row["title"]]
        lines.append("| " + " | ".join(cells) + " |")
    return ["\n".join(head + lines)]


def script_keys(row, root):
    options = dict(row["options"])
    recipe = (root / options["config"]).read_text(encoding="utf-8") if "config" in options else ""
    return dict(re.findall(r"^(\w+): *([^\s#]+)", recipe, re.M)) | options


def names(suite, rows):
    """The rows as a pattern; a sweep that is there whole goes by its own name."""
    chosen, ids = [], {row["id"] for row in rows}
    for row in rows:
        group = row["group"]
        whole = group and {other["id"] for other in suite["rows"] if other["group"] == group} <= ids
        chosen.append(group if whole else row["id"])
    return ",".join(dict.fromkeys(chosen))


def table(suite, rows, pattern, own, spread):
    """The commands and the table of rows on own = (machines, GPUs on each); pattern is empty for all of the suite."""
    (machines, gpus), several = own, math.prod(own) > 1
    options = options_of(suite["name"], own, spread)
    first = f"snug lab run {suite['name']} --rows {rows[0]['id']}{options}"
    every = f"snug lab run {suite['name']}{' --rows ' * bool(pattern)}{pattern}{options}"
    lines = [f"| `{row['id']}` | {row['title']} | {EXPECTED.get(row['expected'], '–')} | | | | |" for row in rows]
    memory = "memory of the fullest GPU" if several else "memory"
    head = f"| row | what it is | expected | ended | time a step | {memory} | utilization |"
    parts = [f"**{machines} × {gpus}**: {count(machines, 'machine')}, {count(gpus, 'GPU')} in each"] if several else []
    parts.append(shell(first + "   # then the next row" * (len(rows) > 1)))
    parts.append("\n".join([head, "|" + "---|" * 7, *lines]))
    if len(rows) > 1:
        with_searches = not pattern and suite["groups"]
        parts.append(shell(every + ("   # all of them, and the searches" if with_searches else "   # all of them")))
    return "\n\n".join(parts)


def options_of(name, own, spread):
    machines, gpus = own
    options = ""
    if machines > 1:
        hosts = ",".join(f"gpu-{letter}:{gpus}" for letter in "abcd"[:machines])
        options = f" --set devices={gpus} --set num_nodes={machines} --set hosts={hosts}"
    return options + f" --out_dir out/lab/{name}-{machines}x{gpus}" * (len(spread) > 1)


def count(number, what):
    return f"{number} {what}{'s' * (number > 1)}"


def shell(*commands):
    """A cell; a command that is too long for the page goes on in further lines."""
    lines = []
    for command in commands:
        line = ""
        for word in command.split(" --"):
            word = word if not line else f" --{word}"
            if line and len(line + word) > 110:
                lines.append(line + " \\")
                line = "   " + word
            else:
                line += word
        lines.append(line)
    return "\n".join(["```sh", *lines, "```"])


if __name__ == "__main__":
    main()
