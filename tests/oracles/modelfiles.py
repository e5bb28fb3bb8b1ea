#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders the TEMPLATEs of tests/data/tokenizer/modelfiles.json with Go's own text/template, in which ollama reads
them, and compares each conversation of jinja.json with what Jinja made of it.

Needs go on the path. Usage: python modelfiles.py
"""
import json
import re
import subprocess
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data" / "tokenizer"

# As ollama calls a template that mentions .Messages: System is the text of all system messages.
PROGRAM = """
package main

import (
	"encoding/json"
	"os"
	"strings"
	"text/template"
)

type Message struct{ Role, Content string }
type Case struct {
	Template, System string
	Messages         []*Message
}

func main() {
	var cases []Case
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	texts := []string{}
	for _, c := range cases {
		var out strings.Builder
		parsed := template.Must(template.New("").Parse(c.Template))
		if err := parsed.Execute(&out, map[string]any{"System": c.System, "Messages": c.Messages}); err != nil {
			panic(err)
		}
		texts = append(texts, out.String())
	}
	json.NewEncoder(os.Stdout).Encode(texts)
}
"""


def main():
    bos = json.loads((DATA / "jinja.json").read_text())["tokens"]["bos_token"]
    chats = json.loads((DATA / "jinja.json").read_text())["chats"]
    templates = {}
    for name, modelfile in json.loads((DATA / "modelfiles.json").read_text()).items():
        if found := re.search('TEMPLATE """(.*)"""', modelfile, re.DOTALL):
            templates[name] = found[1]
    cases, expected = [], []
    for chat in chats:
        roles = [message["role"] for message in chat["messages"]]
        has_turns = chat["name"] in templates and all('eq .Role "%s"' % role in templates[chat["name"]] for role in roles)
        # A Modelfile leaves messages as they are, where Jinja may trim them or drop thoughts.
        has_turns = has_turns and all(m["content"] == m["content"].strip() and "</think>" not in m["content"] for m in chat["messages"])
        if not has_turns or chat["expected"] is None or not chat["add_generation_prompt"] or roles[-1] == "assistant":
            continue
        system = "\n\n".join(m["content"] for m in chat["messages"] if m["role"] == "system")
        cases.append({"Template": templates[chat["name"]], "System": system, "Messages": chat["messages"]})
        expected.append((chat["name"], chat["expected"].removeprefix(bos)))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "main.go"
        program.write_text(PROGRAM)
        rendered = json.loads(subprocess.run(["go", "run", str(program)], input=json.dumps(cases), capture_output=True, text=True, check=True).stdout)
    counts = {}
    for case, (name, text), found in zip(cases, expected, rendered):
        assert found == text, (name, case["Messages"], found, text)
        counts[name] = counts.get(name, 0) + 1
    print("conversations that Go writes as Jinja does:", counts)


if __name__ == "__main__":
    main()
