# SPDX-License-Identifier: Apache-2.0
"""Expected output of chat templates, rendered by Jinja as transformers sets it up.

The chat templates are written for this test after the formats of the model families; the snippets try one
feature each. Writes tests/data/tokenizer/jinja.json.

Needs jinja2. Usage: python tokenizer_jinja.py
"""
import json
from datetime import datetime

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenizer_text import DATA

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}
    {% set turns = messages[1:] %}{% set system = '<<SYS>>\\n' ~ messages[0]['content'].strip() ~ '\\n<</SYS>>\\n\\n' %}
{% else %}
    {% set turns = messages %}{% set system = false %}
{% endif %}
{% for message in turns %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('turns of user and assistant must alternate') }}
    {% endif %}
    {% if message['role'] == 'user' %}
        {{ bos_token + '[INST] ' + (system if loop.index0 == 0 and system else '') + message['content'] | trim + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
        {{ ' ' + message['content'] | trim + ' ' + eos_token }}
    {% endif %}
{% endfor %}
"""

LLAMA3 = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and false %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{#- the system message comes first #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.tool_calls is defined) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}{{- raise_exception("roles must alternate") }}{%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}{{- raise_exception("only user and assistant, and a system message first") }}
    {%- endif %}
{%- endfor %}
"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}
        {%- elif content and '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and thought %}{{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\\n' + (content or '') }}{%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if call.function %}{%- set call = call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
                {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.first) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

# With what gpt-oss's asks of Jinja: recursive macros, a namespace, later messages, today's date, tools by type.
HARMONY = """{%- macro type_of(spec, nullable=false) -%}
    {%- if spec.type == "array" -%}
        {{- type_of(spec['items']) if spec['items'] is defined else "any" }}{{- "[]" }}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.enum is defined -%}
        {{- '"' + spec.enum | join('" | "') + '"' }}
    {%- elif spec.type == "object" -%}
        {{- "{" }}
        {%- for name, inner in spec.properties.items() -%}
            {{- name + ("?" if name not in (spec.required or []) else "") + ": " + type_of(inner) }}{{- ", " if not loop.last }}
        {%- endfor -%}
        {{- "}" }}
    {%- else -%}
        {{- {"integer": "number", "string": "string"}.get(spec.type, "any") }}
    {%- endif -%}
    {%- if nullable %}{{- " | null" }}{%- endif -%}
{%- endmacro -%}
{%- macro system_message() -%}
    {%- if model_identity is not defined %}{%- set model_identity = "A model made for a test." %}{%- endif %}
    {{- model_identity + "\\n" }}
    {{- "Date: " + ("####-##-##" if strftime_now("%Y-%m-%d") | length == 10 else "none") + "\\n\\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Effort: " + reasoning_effort }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- system_message() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set instructions = messages[0].content %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set instructions = "" %}
    {%- set rest = messages %}
{%- endif %}
{%- set tools = [{"name": "find", "parameters": {"type": "object", "required": ["what"], "properties": {"what": {"type": "string"},
    "kinds": {"type": "array", "items": {"enum": ["a", "b"]}}, "most": {"type": ["number", "null"]}}}}] %}
{%- if instructions or tools %}
    {{- "<|start|>developer<|message|>" + instructions }}
    {%- for tool in tools %}{{- "\\ntype " + tool.name + " = (_: " + type_of(tool.parameters, nullable=true) + ") => any;" }}{%- endfor %}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_call = namespace(name=none) %}
{%- for message in rest -%}
    {%- if message.role == "assistant" -%}
        {%- if "<|channel|>" in message.content %}{{- raise_exception("channels are the template's") }}{%- endif %}
        {%- if "tool_calls" in message %}
            {%- set last_call.name = message.tool_calls[0].function.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {%- set later = namespace(user=false) %}
            {%- for other in rest[loop.index:] %}{%- if other.role == "user" %}{%- set later.user = true %}{%- endif %}{%- endfor %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{{- "" if later.user else "!" }}
        {%- endif %}
    {%- elif message.role == "tool" -%}
        {%- if last_call.name is none %}{{- raise_exception("a result without a call") }}{%- endif %}
    {%- else -%}
        {{- "<|start|>" + message.role + "<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|start|>assistant" }}{%- endif -%}
"""

SNIPPETS = r"""
{{ 1 + 2 * 3 ** 2 // 4 - -5 % 3 }}|{{ 7 / 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 2 ** -1 }}|{{ 1e3 }}|{{ 1_000 }}|{{ 0.1 + 0.2 }}|{{ 10 ** 18 }}
{{ 1 ~ 'a' ~ none ~ true ~ 1.0 ~ [1, 'x', none] ~ {'k': 'v\n', "q'": 1.5} }}
{{ 'a' 'b' }}{{ "it's" | upper }}{{ 'É' | lower }}{{ 'hello wORLD it' | title }}{{ 'hELLO' | capitalize }}{{ ' x ' | trim }}{{ 'xxaxx' | trim('x') }}
{{ missing }}{{ missing is defined }}{{ missing is undefined }}{{ missing | default('d') }}{{ '' | default('e', true) }}{{ none | d('f', boolean=true) }}
{{ missing.attribute }}
{{ number.real_missing is defined }}{{ dict.missing is defined }}{{ dict['a'] }}{{ dict.a }}{{ dict.get('zz') }}{{ dict.get('zz', 4) }}{{ 'a' in dict }}{{ 'b' not in dict }}
{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{{ dict.keys() | list }}{{ dict.values() | list }}{{ dict | length }}{% for k in dict %}{{ k }}{% endfor %}{% for k, v in dict | dictsort %}{{ k }}{% endfor %}{% for p in dict | items %}{{ p[0] }}{% endfor %}
{{ list[0] }}{{ list[-1] }}{{ list[1:] }}{{ list[:-1] }}{{ list[::-1] }}{{ list[::2] }}{{ list[5:1:-2] }}{{ list[-100:100] }}{{ list[100] is defined }}{{ list[3:1] }}{{ list[:-100:-1] }}
{{ text[0] }}{{ text[-1] }}{{ text[1:3] }}{{ text[::-1] }}{{ text | length }}{{ text | list }}{{ text | reverse }}{{ text | first }}{{ text | last }}
{% for x in list %}{{ loop.index }},{{ loop.index0 }},{{ loop.first }},{{ loop.last }},{{ loop.length }},{{ loop.revindex }},{{ loop.revindex0 }},{{ loop.previtem }},{{ loop.nextitem }},{{ loop.cycle('a', 'b') }};{% else %}never{% endfor %}
{% for x in [] %}x{% else %}empty{% endfor %}{% for x in list if x is odd %}{{ x }}/{{ loop.length }} {% endfor %}{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}{% for x in range(3) %}{% for y in range(x, 5, 2) %}{{ x }}{{ y }} {% endfor %}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{% set ns.c = [1] %}{{ ns.c }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set block %}in{{ a }}side{% endset %}{{ block }}{% set loud | upper %}abc{% endset %}{{ loud }}{% filter upper | trim %} shout {% endfilter %}
{% macro greet(name, greeting='Hi') %}{{ greeting }}, {{ name }}!{% endmacro %}{{ greet('Ann') }}{{ greet('Bob', greeting='Yo') }}{{ greet(name='C') | upper }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(6) }}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{{ 1 < 2 < 3 }}{{ 3 > 2 > 1 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ not 1 > 2 }}{{ 1 != 2 and 2 >= 2 or false }}{{ none == false }}{{ true == 1 }}{{ 'ell' in 'hello' }}{{ 2 in list }}{{ 5 not in list }}
{{ 'yes' if 1 else 'no' }}{{ 'yes' if 0 }}{{ 'a' if false else 'b' if false else 'c' }}{{ (1, 2) | length }}{{ 'x' * 3 }}{{ [0] * 2 }}{{ [1] + [2] }}
{{ ' a b  c '.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'l1\nl2\r\nl3\n'.splitlines() }}{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xyax'.strip('xy') }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abcabc'.replace('b', 'ZZ') }}{{ 'abcabc'.replace('b', 'Z', 1) }}{{ 'abcabc'.find('ca') }}{{ 'abc'.find('x') }}{{ 'abcabc'.rfind('b') }}{{ 'aXbX'.count('X') }}{{ '-'.join(['a', 'b']) }}{{ 'abc'.upper() }}{{ 'ABC'.lower() }}{{ 'a b'.title() }}{{ '12'.isdigit() }}{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.py'.removesuffix('.py') }}
{{ list | join(', ') }}{{ list | sum }}{{ list | max }}{{ list | min }}{{ [3, 1, 2] | sort }}{{ [3, 1, 2] | sort(reverse=true) }}{{ ['b', 'A', 'c'] | sort }}{{ [1, 1, 2] | unique | list }}{{ list | map('string') | join('+') }}{{ people | map(attribute='name') | list }}{{ people | selectattr('age', 'gt', 30) | map(attribute='name') | join }}{{ people | rejectattr('age', 'gt', 30) | list | length }}{{ list | select('even') | list }}{{ list | reject('even') | list }}{{ people | selectattr('admin') | list | length }}{{ people | sort(attribute='age') | map(attribute='name') | join(' ') }}
{{ dict | tojson }}{{ [1, 2.5, 'é"\\\n\t', none, true] | tojson }}{{ {'a': [1, {'b': []}], 'c': {}} | tojson(indent=2) }}{{ 'x' | tojson }}{{ '/<>&' | tojson }}
{{ '42' | int + 1 }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ '3.9' | int }}{{ 3.9 | int }}{{ '1.5' | float }}{{ -3 | abs }}{{ 3.14159 | round(2) }}{{ 2.5 | round }}{{ 42 | string + '!' }}{{ '<a>' | e }}
{{ 4 is even }}{{ 4 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 'x' is string }}{{ 1 is number }}{{ 1.0 is float }}{{ 1 is integer }}{{ true is boolean }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is iterable }}{{ none is none }}{{ 1 is not none }}{{ 1 is eq 1 }}{{ 1 is in [1] }}{{ true is true }}{{ 1 is true }}{{ 'a' is lower }}{{ 'A' is upper }}{{ raise_exception is callable }}
{{ 'a\tb\\n\x41\u00e9\'' }}{{ "tab	quote'" }}{{ 'line
break' }}
{% raw %}{{ not rendered }} {% if %}{% endraw %}|{# a comment #}|{#- another -#} x
a  {%- if true -%}  b  {%- endif -%}  c {{- ' d ' -}} e
  {% if true %}
  kept line
  {% endif %}
  next
	{%+ if true %}plus{% endif +%}
after
{{ '%s' }}{{ "}}" }}{{ '{%' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{}} }}
{{ [1, 2, 3,] }}{{ (1,) | list }}{{ [[1, 2], [3]] | map('length') | list }}{{ ('a', 'b') | join }}{{ 'abc' | indent(2) }}{{ 'a\nb\n\nc' | indent(2, true) }}
{{ raise_exception('stop here') }}
{{ 1 + 'a' }}
{{ unknown_function() }}
{{ 'x' | no_such_filter }}
{{ 1 is no_such_test }}
{{ 1 / 0 }}
{% for x in 5 %}{% endfor %}
{{ list.append(1) }}
{% if %}{% endif %}
{% if true %}
{{ 1 +
{% endfor %}
{{ 'open
{# open
{% set dict.a = 1 %}
{{ range(100000000) }}
{{ 'a' < 1 }}
"""

VARIABLES = {"dict": {"a": 1, "b": [1, "x"], "c": None}, "list": [1, 2, 3, 4], "text": "héllo", "number": 5, "people": [{"name": "Ann", "age": 41, "admin": True}, {"name": "Bob", "age": 29}, {"name": "Cy", "age": 35, "admin": False}]}

CONVERSATIONS = [
    [{"role": "user", "content": "Hi there"}],
    [{"role": "system", "content": "  You are brief. "}, {"role": "user", "content": " What is 2+2? "}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}, {"role": "user", "content": "c\n"}],
    [{"role": "system", "content": "s"}, {"role": "user", "content": "u1"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"}, {"role": "user", "content": "é 日本 {{ x }} {% y %}"}],
    [{"role": "user", "content": ""}, {"role": "assistant", "content": "<think>\nwell\n</think>\n\nso"}],
    [{"role": "assistant", "content": "first"}, {"role": "user", "content": "second"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "\nso 1 < 2\n"}],
    [{"role": "user", "content": "u"}, {"role": "tool", "content": "t1"}, {"role": "tool", "content": "t2"}, {"role": "user", "content": "v"}],
]

# Keys are not in the order of the alphabet, and must stay as they are.
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a \"city\", é", "parameters": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "default": 1.5}}}}}]
CALLS = [
    [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "id": "1", "function": {"name": "weather", "arguments": {"days": 2, "city": "Köln", "exact": True}}}]},
     {"role": "tool", "name": "weather", "content": "yes"}, {"role": "assistant", "content": "Yes."}],
    [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "I look.", "reasoning_content": "two", "tool_calls": [{"name": "weather", "arguments": "{\"city\": 1}"}, {"name": "weather", "arguments": {}}]}],
]


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


def render(template, variables):
    try:
        return environment().from_string(template).render(**variables)
    except Exception:  # whatever goes wrong there must go wrong here
        return None


def as_transformers_hands_over(messages):
    """A thought has two names there, whichever it was given under."""
    handed = []
    for message in messages:
        thought = next((message[key] for key in ("reasoning_content", "thinking", "reasoning") if message.get(key) is not None), None)
        handed.append(message if thought is None else {"thinking": thought, **message, "reasoning_content": thought})
    return handed


def split_snippets():
    """One a line, but what is meant to span lines is joined to what follows."""
    lines, out = SNIPPETS.strip("\n").split("\n"), []
    index = 0
    joined = {"{{ 'a\\tb": 2, "  {% if": 6}
    while index < len(lines):
        count = next((n for start, n in joined.items() if lines[index].startswith(start)), 1)
        out.append("\n".join(lines[index:index + count]))
        index += count
    return out


def main():
    cases = []
    for name, template in {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL, "qwen": QWEN, "zephyr": ZEPHYR, "harmony": HARMONY}.items():
        for messages in CONVERSATIONS:
            for prompt in (False, True):
                variables = {"messages": as_transformers_hands_over(messages), "add_generation_prompt": prompt, "tools": None, "documents": None, **TOKENS}
                cases.append({"name": name, "template": template, "messages": messages, "add_generation_prompt": prompt, "expected": render(template, variables)})
    for messages in CALLS:
        for tools in (None, TOOLS):
            variables = {"messages": as_transformers_hands_over(messages), "add_generation_prompt": False, "tools": tools, "documents": None, **TOKENS}
            cases.append({"name": "qwen", "template": QWEN, "messages": messages, "add_generation_prompt": False, "tools": tools, "expected": render(QWEN, variables)})
    snippets = [{"template": text, "expected": render(text, VARIABLES)} for text in split_snippets()]
    document = {"jinja2": jinja2.__version__, "tokens": TOKENS, "variables": VARIABLES, "chats": cases, "snippets": snippets}
    (DATA / "jinja.json").write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
