# SPDX-License-Identifier: Apache-2.0
"""Chats as transformers renders them, and which stretches it takes for an assistant's.

The templates are written for this test, each in a manner in which models' templates are: they drop earlier thoughts,
end a text or a turn in their own way, begin answers with what the prompt did not, loop over numbers or over messages
of their own making. « and » stand where {% generation %} and {% endgeneration %} would; the test finds the same
stretches with the marks and without them. Writes tests/data/tokenizer/chats.json.

Needs transformers. Usage: python chats.py
"""
import copy
import json
import random

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from tokenizer_text import DATA

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

CALLS = """{% for call in m.tool_calls or [] %}{{ '<call>' ~ call.function.name ~ ' ' ~ (call.function.arguments | tojson) ~ '</call>' }}{% endfor %}"""

TEMPLATES = {
    # A default system text in the first turn; tools.
    "turns": """{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\\nBe good.<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' ~ m.role ~ '\\n' }}{% if m.role == 'assistant' %}«{{ m.content }}""" + CALLS + """{{ '<|im_end|>\\n' }}»{% else %}{{ m.content ~ '<|im_end|>\\n' }}{% endif %}{% endfor %}""" + OPEN,
    # Thoughts of the last answers alone; an empty one is written there.
    "thoughts": """{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{% endfor %}{% for m in messages %}{% if m.role == 'assistant' %}{% set thought = m.reasoning_content or '' %}{% set content = m.content %}{% if not thought and '</think>' in content %}{% set thought = content.split('</think>')[0].split('<think>')[-1].strip() %}{% set content = content.split('</think>')[-1].lstrip() %}{% endif %}{{ '<|im_start|>assistant\\n' }}«{% if loop.index0 > ns.last %}{{ '<think>\\n' ~ thought ~ '\\n</think>\\n\\n' }}{% endif %}{{ content }}""" + CALLS + """{{ '<|im_end|>\\n' }}»{% else %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}""",
    # The prompt begins a thought, which is dropped where it was written.
    "dropped": """{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ '<｜A｜>' }}«{{ m.content.split('</think>')[-1] }}{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}{{ eos_token }}»{% elif m.role == 'user' %}{{ '<｜U｜>' ~ m.content }}{% elif m.role == 'tool' %}{{ '<｜T｜>' ~ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<｜A｜><think>\\n' }}{% endif %}""",
    # Channels; the mark that ends the last answer is another.
    "channels": """{% if messages[0].role == 'system' %}{% set turns = messages[1:] %}{{ '<|start|>developer<|message|>' ~ messages[0].content ~ '<|end|>' }}{% else %}{% set turns = messages %}{% endif %}{% for m in turns %}{% if m.role == 'assistant' %}{% if 'tool_calls' in m %}{% set call = m.tool_calls[0].function %}{{ '<|start|>assistant' }}«{{ ' to=functions.' ~ call.name ~ '<|channel|>commentary json<|message|>' ~ (call.arguments | tojson) ~ '<|call|>' }}»{% elif loop.last and not add_generation_prompt %}{{ '<|start|>assistant' }}«{% if 'thinking' in m %}{{ '<|channel|>analysis<|message|>' ~ m.thinking ~ '<|end|><|start|>assistant' }}{% endif %}{{ '<|channel|>final<|message|>' ~ m.content ~ '<|return|>' }}»{% else %}{{ '<|start|>assistant' }}«{{ '<|channel|>final<|message|>' ~ m.content ~ '<|end|>' }}»{% endif %}{% else %}{{ '<|start|>' ~ m.role ~ '<|message|>' ~ m.content ~ '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}""",
    # Every text that is no prompt ends with the end of sequence.
    "ended": """{% for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' }}{% if m.role == 'assistant' %}«{{ m.content ~ '<|end|>\\n' }}»{% else %}{{ m.content ~ '<|end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% elif messages[-1].role == 'assistant' %}«{{ eos_token }}»{% else %}{{ eos_token }}{% endif %}""",
    # No beginning of an answer, whatever is asked for; the system text goes to the last question.
    "instructions": """{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}{{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}{{ '[INST] ' ~ (system ~ '\\n\\n' if loop.last and system else '') ~ m.content ~ '[/INST]' }}{% elif m.role == 'assistant' %}«{{ ' ' ~ m.content | trim ~ eos_token }}»{% endif %}{% endfor %}""",
    # Results of tools stand in the turn that called; it goes on behind them.
    "within": """{% set ns = namespace(before='') %}{% for m in messages %}{% if m.role != 'tool' %}{% set goes_on = m.role == 'assistant' and ns.before == 'assistant' %}{% if not goes_on %}{{ '<|turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\\n' }}{% endif %}{% if m.role == 'assistant' %}«{{ m.content | trim }}""" + CALLS + """»{% set scan = namespace(stopped=false) %}{% for k in range(loop.index0 + 1, messages | length) %}{% if messages[k].role != 'tool' %}{% set scan.stopped = true %}{% elif not scan.stopped %}{% set result = messages[k] %}{{ '<result>' ~ result.content ~ '<result|>' }}{% endif %}{% endfor %}{% if not m.tool_calls %}«{{ '<turn|>\\n' }}»{% endif %}{% else %}{{ m.content | trim ~ '<turn|>\\n' }}{% endif %}{% set ns.before = m.role %}{% endif %}{% endfor %}{% if add_generation_prompt and ns.before != 'assistant' %}{{ '<|turn>model\\n' }}{% endif %}""",
    # Loops over numbers.
    "numbers": """{% for i in range(messages | length) %}{% set m = messages[i] %}{% set next = messages[i + 1] if i + 1 < messages | length else none %}{{ '<' ~ m.role ~ '>' }}{% if m.role == 'assistant' %}«{{ m.content ~ '</>' }}»{% else %}{{ m.content ~ '</>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}""",
    # The beginning of an answer comes out of the loop.
    "in_the_loop": """{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>\\n' ~ m.content ~ eos_token }}{% elif m.role == 'system' %}{{ '<|system|>\\n' ~ m.content ~ eos_token }}{% elif m.role == 'assistant' %}{{ '<|assistant|>' }}«{{ '\\n' ~ m.content ~ eos_token }}»{% endif %}
{% if loop.last and add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
{% endfor %}""",
    # Macros and captured text.
    "macros": """{%- macro words(m) -%}{{- m.content | trim -}}{%- endmacro -%}{%- for m in messages -%}{%- set text -%}{{ words(m) }}{%- endset -%}{{- '<|im_start|>' ~ m.role ~ '\\n' -}}{%- if m.role == 'assistant' -%}«{{- text ~ '<|im_end|>' -}}»{{- '' -}}{%- else -%}{{- text ~ '<|im_end|>' -}}{%- endif -%}{%- endfor -%}""" + OPEN,
    # Loops over messages of its own making: marks stand for the contents.
    "own_messages": """{% set ns = namespace(turns=[]) %}{% for m in messages %}{% set ns.turns = ns.turns + [{'role': m.role, 'content': m.content | trim}] %}{% endfor %}{% for m in ns.turns %}{{ '<|im_start|>' ~ m.role ~ '\\n' }}{% if m.role == 'assistant' %}«{{ m.content }}»{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}""" + OPEN,
    # Names instead of marks, and no beginning of an answer.
    "names": """{% for m in messages %}{% if m.role == 'user' %}{{ 'USER: ' ~ m.content ~ ' ' }}{% elif m.role == 'assistant' %}{{ 'ASSISTANT:' }}«{{ ' ' ~ m.content ~ eos_token }}»{% else %}{{ m.content ~ ' ' }}{% endif %}{% endfor %}""",
}
# What they do not write is left out of the conversations drawn for them.
WITHOUT_TOOLS = {"ended", "instructions", "numbers", "in_the_loop", "macros", "own_messages", "names"}
WITHOUT_EMPTY = {"instructions", "own_messages", "names"}

WORDS = ["ok", "ok", "Hi", "assistant", "What is 2 + 2?", "Köln", "a\nb", " spaces ", "<|im_end|>", "[/INST]", "1", "q", "user: no", "日本"]


def draw(name, r):
    def words():
        return " ".join(r.choice(WORDS) for _ in range(r.randint(1, 3)))

    messages = [{"role": "system", "content": words()}] if r.random() < 0.4 else []
    for _ in range(r.randint(1, 3)):
        messages.append({"role": "user", "content": words()})
        if name not in WITHOUT_TOOLS and r.random() < 0.4:
            arguments = {"city": words(), "n": r.randint(0, 9), "deep": {"yes": True}}
            call = {"type": "function", "function": {"name": "find", "arguments": arguments}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "content": words()})
        answer = {"role": "assistant", "content": words()}
        if r.random() < 0.3:
            answer[r.choice(["reasoning_content", "thinking", "reasoning"])] = words()
        elif r.random() < 0.2:
            answer["content"] = f"<think>\n{words()}\n</think>\n\n{answer['content']}"
        elif name not in WITHOUT_EMPTY and r.random() < 0.1:
            answer["content"] = ""
        messages.append(answer)
    if r.random() < 0.1:
        messages.append({"role": "user", "content": words()})
    return messages


def expected(template, messages):
    marked = template.replace("«", "{% generation %}").replace("»", "{% endgeneration %}")
    try:
        texts, spans = render_jinja_template([copy.deepcopy(messages)], chat_template=marked, return_assistant_tokens_mask=True, **TOKENS)
    except Exception:  # whatever goes wrong there must go wrong here
        return None
    text = texts[0]
    bytes_to = lambda end: len(text[:end].encode())
    joined = []
    for begin, end in spans[0]:
        if begin == end:
            continue
        if joined and joined[-1][1] == begin:
            joined[-1][1] = end
        else:
            joined.append([begin, end])
    return {"text": text, "answers": [[bytes_to(begin), bytes_to(end)] for begin, end in joined]}


def main():
    document = {"transformers": transformers.__version__, "tokens": TOKENS, "templates": {}}
    for name, template in TEMPLATES.items():
        r = random.Random(name)
        cases = []
        for _ in range(25):
            messages = draw(name, r)
            cases.append({"messages": messages, "expected": expected(template, messages)})
        document["templates"][name] = {"template": template, "cases": cases}
    (DATA / "chats.json").write_text(json.dumps(document, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
