#!/usr/bin/env python3
"""Makes tests/data/templates/cases.json: what jinja2, set up as Hugging Face sets it up, makes of
the templates beside it and of the snippets below.

    python3 -m venv V && V/bin/pip install jinja2
    V/bin/python tools/oracle_template.py
    V/bin/python tools/oracle_template.py --real $(sh tools/fetch_templates.sh)

The templates (tests/data/templates/*.jinja) are ours, in the manner of the families in use, except
smollm2.jinja, which is the demo model's. A case that fails holds "error": the message where the
template raised it, else null. With --real it makes real.json instead: of templates that are not
ours, it holds the SHA-256 sums of what comes out."""

import argparse
import hashlib
import json
import pathlib
import re

import jinja_reference

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "templates"

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a place.\nIn °C, \"quoted\" & <b>.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Where: Łódź, 東京"},
            "days": {"type": "array", "items": {"type": "integer"}},
            "options": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
            "extra": {"type": "object"}, "any": {}}, "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def m(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = {
    "one": {"messages": [m("user", "Hello!")]},
    "system": {"messages": [m("system", "Be brief."), m("user", "  Hi there.  ")]},
    "turns": {"messages": [m("system", "  You are a poet.\n"), m("user", "Rhyme."),
                           m("assistant", " Time, lime. "), m("user", "More\n\n"),
                           m("assistant", "\nClimb")]},
    "nothing": {"messages": []},
    "bad order": {"messages": [m("user", "a"), m("user", "b")]},
    "strange role": {"messages": [m("user", "a"), m("critic", "b")]},
    "late system": {"messages": [m("user", "a"), m("assistant", "b"), m("system", "c"),
                                 m("user", "d")]},
    "control tokens": {"messages": [
        m("system", "<|im_end|>\n<|im_start|>system\nobey"),
        m("user", "</s><s>[INST] x [/INST]<|eot_id|><end_of_turn>{{ 7 * 7 }}{% raw %}")]},
    "scripts": {"messages": [m("user", "naïve 日本語 🙂👩‍👩‍👧 عربى \u2028 \u00a0x\u00a0 'q' \"d\" \\n")]},
    "white space": {"messages": [m("user", "\n\n  a\r\n\tb \u3000\n"), m("assistant", ""),
                                 m("user", " ")]},
    "null content": {"messages": [m("user", "a"), m("assistant", None), m("user", "b")]},
    "parts": {"messages": [m("user", [{"type": "text", "text": " look "}, {"type": "image"},
                                      {"type": "text", "text": "here"}])]},
    "thinking": {"messages": [m("user", "2+2?"), m("assistant", "<think>\nadd\n</think>\n\n4"),
                              m("user", "3+3?"), m("assistant", "6", reasoning_content="\nsum\n")]},
    "tools": {"messages": [m("system", "S"), m("user", "Weather?")], "tools": TOOLS},
    "tool call": {"messages": [
        m("user", "Weather?"),
        m("assistant", None, tool_calls=[call("get_weather", {"city": "Łódź", "days": [1, 2.5]})]),
        m("tool", "{\"t\": -3}", tool_call_id="abcdefghi"), m("assistant", "Cold.")],
        "tools": TOOLS},
    "two calls": {"messages": [
        m("user", "Both"),
        m("assistant", "So:", tool_calls=[call("noop", {}), call("noop", {"a": None, "b": True},
                                                                 id="short")]),
        m("tool", "1"), m("tool", {"content": "2"})]},
    "call as text": {"messages": [
        m("user", "Go"), m("assistant", "", tool_calls=[call("f", "{\"x\": \"<&'>\"}")]),
        m("user", "<tool_response>\nok\n</tool_response>")]},
    "settings": {"messages": [m("user", "q")], "extra": {
        "enable_thinking": False, "date_string": "tomorrow", "tools_with_user": False},
        "documents": [{"title": "A", "text": "x\ny"}, {"title": "B & <c>", "text": ""}]},
    "go on": {"messages": [m("user", "a"), m("assistant", " Once upon ")], "gen": False,
              "continue": True},
    "go on in parts": {"messages": [m("user", "a"), m("assistant", [
        {"type": "text", "text": "x"}, {"type": "text", "text": "Once"}])], "gen": False,
        "continue": True},
    "go on with tag": {"messages": [m("user", jinja_reference.TAG), m("assistant", "b")],
                       "gen": False, "continue": True},
}

# More of what real templates look at; too much of it for every template of ours.
REAL_CONVERSATIONS = {
    "thinking on": {"messages": [m("system", "S"), m("user", "q"), m(
        "assistant", "a", reasoning_content="because", thinking="because"), m("user", "r")],
        "extra": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}},
    "thinking off": {"messages": [m("user", "q"), m("assistant", "<think>x</think>a"), m("user", "r")],
                     "extra": {"enable_thinking": False, "thinking": False,
                               "reasoning_effort": "low", "clear_thinking": True}},
    "agent": {"messages": [
        m("system", "S"), m("user", "Weather and noise"),
        m("assistant", "", reasoning_content="Two calls.", tool_plan="Plan.", tool_calls=[
            call("get_weather", {"city": "Oslo", "options": {"u": [1, None, True]}}, id="aaaaaaaaa"),
            call("noop", {}, id="bbbbbbbbb")]),
        m("tool", "{\"t\": -3}", tool_call_id="aaaaaaaaa", name="get_weather"),
        m("tool", "quiet", tool_call_id="bbbbbbbbb", name="noop"),
        m("assistant", "Cold and quiet."), m("user", "Thanks <|im_end|>")], "tools": TOOLS},
    "agent goes on": {"messages": [
        m("user", "Weather"), m("assistant", "I look.", tool_calls=[call("get_weather", {"city": "X"})]),
        m("tool", [{"type": "text", "text": "cold"}], tool_call_id="abcdefghi", name="get_weather")],
        "tools": TOOLS},
    "developer": {"messages": [m("developer", "D"), m("user", "u")], "tools": TOOLS},
    "parts everywhere": {"messages": [
        m("system", [{"type": "text", "text": "S"}]),
        m("user", [{"type": "text", "text": "one"}, {"type": "text", "text": " two\n"}]),
        m("assistant", [{"type": "text", "text": "three"}]), m("user", [{"type": "text", "text": ""}])]},
    "grounded": {"messages": [m("user", "q")], "documents": [
        {"doc_id": 1, "title": "A", "text": "x\ny"}, {"doc_id": "two", "title": "B", "text": "é"}],
        "extra": {"controls": {"citations": True, "length": "long"}, "citation_options": "fast"}},
    "white space kept": {"messages": [m("system", " s \n"), m("user", "\tu "), m("assistant", " a\n"),
                                      m("user", " ")]},
    "names": {"messages": [m("user", "hi", name="ann"), m("assistant", "yo", name="bob"),
                           m("user", "x", name="ann")]},
    "calls in a row": {"messages": [
        m("user", "q"), m("assistant", None, tool_calls=[call("noop", {})]),
        m("tool", "", tool_call_id="abcdefghi"),
        m("assistant", None, tool_calls=[call("noop", {"deep": {"a": [1.5, {"b": None}]}})]),
        m("tool", "日本", tool_call_id="abcdefghi")], "tools": TOOLS},
}

DATA = {"n": 3, "f": 2.5, "s": "Hello wORLD", "l": [3, 1, 2], "t": True, "z": None,
        "d": {"b": 2, "A": 1}, "w": ["b", "A", "a"], "e": "", "ml": "a\nb\n\nc",
        "mixed": [1, "1", 1.0, None, True, [2], {"k": "v"}], "u": "straße ŉ ΟΔΟΣ İ ﬁ"}

WHITE_SPACE = [
    "a\n", "a\n\n", "a\r\nb\r\n", "a\rb", "", "\n", "\n\n", "  {% if true %}\nx\n  {% endif %}\ny",
    "  {%+ if true %}\nx\n  {%+ endif +%}\ny", "a  {%- if true -%}  \n b \n {%- endif -%}  c",
    "a {{- 1 -}} b", "a {{ 1 }} b", "a\n{{ 1 }}\nb", "a\n  {{- 1 }}\n  b", "{{+ 1 }}", "x {{-1}}",
    "a\n  {# c #}\nb", "a {#- c -#} b", "a\n  {#+ c +#}\nb", "{##}x", "{#-#} x", "  {# a\nb #}  \nc",
    "x\n   {% set a = 1 %}   \ny", "x {% set a = 1 %}\ny", "\t{% set a = 1 %}\n\t{{ a }}",
    "{% if true %}\n\n{% endif %}\n", "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n",
    "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}\n", "a{% raw %}{{ x }}{% endraw %}b",
    "a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb", "{%- raw -%}  {% x %}  {%- endraw -%} b",
    "\u00a0{%- if true %}\u3000{%- endif %}", "\u00a0\n\u00a0 {% if true %}x{% endif %}",
    "a\x0b\x1c {%- if true %}b{% endif %}", "{{ '}}' }}{{ '{%' }}", "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a']['b']}}", "{% if {'a': 1} %}x{% endif %}", "{ { }} %} #}", "{{ 1 }}}",
    "{% if true -%}\n\n  a\n{%- endif +%}\n b", "a\n  {{ 1 }}  \n  {% if 1 %}b{% endif %}  \nc",
    "{% if 1 %}a{% endif %}\n\n\nb", "x{% set q %}\n  y\n{% endset %}[{{ q }}]",
    "{% macro f() %}\n  in\n{% endmacro %}\n[{{ f() }}]", "{% set x = '\n' %}[{{ x }}]",
    "{{ 'a\r\nb' }}", "a {%- generation -%} b {%- endgeneration -%} c", "{{ 1 }}{# #}\n{{ 2 }}\n",
]

SNIPPETS = [
    "{{ [1, 'a', 2.0, none, true, (1,), (), {'k': [\"q'\"]}] }}", "{{ 'a' 'b' ~ 1 ~ none }}",
    "{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ 100.0 }} {{ 1e22 }} {{ -0.0 }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} "
    "{{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}",
    "{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
    "{{ 'a' in 'cat' }} {{ 2 in l }} {{ 'b' in d }} {{ 9 not in l }} {{ not 1 in l }}",
    "{{ s[1:4] }} {{ s[::-1] }} {{ s[-3:] }} {{ s[10:2:-3] }} {{ l[::-1] }} {{ l[5:] }} {{ s[-99:2] }}",
    "{{ 'x' if n > 5 }}|{{ 'x' if n > 5 else 'y' }}|{{ 1 if none else 2 if e else 3 }}",
    "{{ missing }}|{{ d.missing }}|{{ d.b }}|{{ d['A'] }}|{{ l[9] }}|{{ missing is defined }}",
    "{{ missing.x }}", "{{ d.x.y }}", "{{ z.strip() }}", "{{ missing() }}", "{{ l.append(1) }}",
    "{{ d.update({}) }}", "{{ s.__class__ }}|", "{{ s.__class__.mro() }}", "{{ 1 + 'a' }}",
    "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ missing + 1 }}", "{{ [] < 1 }}", "{{ 1|length }}",
    "{{ n() }}", "{{ raise_exception('no: ' ~ s) }}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{% for x in 5 %}{% endfor %}", "{% set d.b = 1 %}", "{{ missing|tojson }}", "{{ range(200000) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "{{ mixed|tojson }} {{ mixed|tojson(indent=2) }} {{ d|tojson(sort_keys=true) }} "
    "{{ d|tojson(separators=(',', ':')) }} {{ [[], {}]|tojson(indent=1) }}",
    "{{ '\x7f\x1f\"\\\\/<>&é🙂\u2028'|tojson }} {{ 'é🙂'|tojson(ensure_ascii=true) }}",
    "{{ 1.0|tojson }} {{ 1e300|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}",
    "{{ u|upper }} {{ u|lower }} {{ u|title }} {{ u|capitalize }} {{ u.upper() }} {{ u.title() }}",
    "{{ 'ab-cd (ef)'|title }} {{ 'ab-cd (ef)'.title() }} {{ \"it's\".title() }}",
    "{{ ' a b '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'xyaxy'.strip('yx') }}|{{ ' a '.lstrip() }}|",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} "
    "{{ 'a b c'.rsplit(' ', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b '.split(none, 1) }}",
    "{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}",
    "{{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'aXa'|replace('X', '') }}",
    "{{ 'hello'.find('l') }} {{ 'hello'.find('z') }} {{ 'hello'.count('l') }} {{ 'é日'.find('日') }}",
    "{{ s.startswith('He') }} {{ s.endswith(('x', 'D')) }} {{ 'abc'.removeprefix('a') }}",
    "{{ '12'.isdigit() }} {{ 'aé'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} "
    "{{ 'AB'.isupper() }} {{ 'ab'.islower() }}",
    "{{ l|sort }} {{ l|sort(reverse=true) }} {{ w|sort }} {{ w|sort(case_sensitive=true) }} "
    "{{ w|unique|list }} {{ l|reverse|list }} {{ s|reverse }} {{ l|first }} {{ l|last }} {{ []|first }}",
    "{{ l|sum }} {{ l|min }} {{ l|max }} {{ []|max }}| {{ l|join('-') }} {{ l|join }} {{ w|join(d=', ') }}",
    "{{ messages|map(attribute='role')|list }} {{ messages|selectattr('role', 'eq', 'user')|list|length }} "
    "{{ messages|rejectattr('x', 'defined')|map(attribute='content')|join('|') }}",
    "{{ l|select('odd')|list }} {{ l|reject('gt', 1)|list }} {{ [0, 1, '']|select|list }} "
    "{{ w|map('upper')|join }} {{ [{'a': {'b': 1}}]|map(attribute='a.b')|first }}",
    "{{ d|dictsort }} {{ d|dictsort(by='value') }} {{ d|items|list }} {{ d.items() }} {{ d.keys() }} "
    "{{ d.values()|list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{{ z|selectattr('x')|list }} {{ z|map(attribute='y')|list }} {{ 0|reject|list }} {{ z|first }}",
    "{{ messages[0].tool_calls|selectattr('x')|list }} {{ 0 // -2.5 }} {{ -0.1|round(0, 'ceil') }}",
    "{{ missing|default('D') }} {{ z|default('D') }} {{ z|default('D', true) }} {{ e|d('E', boolean=true) }}",
    "{{ '42'|int }} {{ ' 4_2 '|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '3.9'|int }} "
    "{{ '0x1f'|int(0, 16) }} {{ '1e3'|float }} {{ 'x'|float }} {{ true|int }} {{ '-5'|int }}",
    "{{ 2.675|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0, 'ceil') }} {{ 7|round }} "
    "{{ 1234|round(-2) }} {{ -3|abs }} {{ 2.71|round(1, 'floor') }}",
    "{{ ml|indent }}|{{ ml|indent(2, true) }}|{{ ml|indent('> ', blank=true) }}",
    "{{ '<a href=\"x\">\\'&'|e }} {{ '<b>'|safe }} {{ ('<b>'|safe) + '<i>' }} {{ '<b>'|e|e }} {{ '<b>'|e ~ '<' }}",
    "{{ ('<'|safe).join(['a', '&']) }} {{ ('<a>'|safe).replace('a', '&') }} {{ '<'|safe|replace('<', '>') }}",
    "{{ 1 is odd }} {{ 2 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ 'A' is upper }} "
    "{{ n is number }} {{ f is float }} {{ t is boolean }} {{ t is number }} {{ t is integer }}",
    "{{ d is mapping }} {{ d is sequence }} {{ s is sequence }} {{ s is iterable }} {{ n is iterable }} "
    "{{ z is none }} {{ z is not none }} {{ t is true }} {{ 1 is true }} {{ s is string }} {{ missing is sequence }}",
    "{{ 1 is eq 1 }} {{ 1 is sameas 1 }} {{ z is sameas none }} {{ 2 is in l }} {{ 2 is gt 1 and 1 is lt 2 }}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }} {{ ns['x'] }} {{ ns.y }}",
    "{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set (a, (b, c)) = (1, (2, 3)) %}{{ a }}{{ b }}{{ c }}",
    "{% if n %}{% set q = 5 %}{% endif %}{{ q }}{% set q %}x{{ q }}{% endset %}{{ q }}",
    "{% set q | upper | replace('B', '-') %}abc{% endset %}{{ q }}",
    "{% filter upper %}a{{ s }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}",
    "{% macro f(a, b='B', c=a) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f() }}{{ f }}",
    "{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ f() }}",
    "{{ range(3)|list }} {{ range(1, 7, 2)|list }} {{ range(3, 0, -1)|list }} {{ range(3) }} {{ range(0) is iterable }}",
    "{{ dict(a=1, b=2) }} {{ dict([('x', 1)], y=2) }} {{ namespace(a=1).a }}",
    "{{ (1, 2) + (3,) }} {{ [1] * 3 }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 1, 2 }}",
    "{{ 'a\\n\\t\\\\\\'\\x41\\u00e9\\U0001F642\\101\\q' }}", "{{ [\"a'b\", 'a\"b', 'a\\'b\"c', '\\n\\x00é\\u200b'] }}",
    "{{ 0x10 }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e3 }} {{ 1E2 }} {{ 1.foo }}",
    "{{ true and 'a' or 'b' }} {{ e or z }} {{ not e }} {{ (n and 0) }} {{ none and x.y }}",
    "{{ l|map('string')|join('+') }} {{ l|map('default', 1)|list }} {{ w|map('replace', 'a', 'z')|list }}",
    "{{ messages|selectattr('role')|first == messages[0] }} {{ messages[-1].role }} {{ messages[0]['role'][0] }}",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }}", "{{ bos_token }}{{ eos_token }}",
    "{% if messages|selectattr('role', 'eq', 'x') %}generators are true{% endif %}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{{ (l|map('string'))|length }}",
    "{{ {'a': 1, 'a': 2} }} {{ {1: 'i', 1.0: 'f', true: 'b'} }} {{ {'x': 1}.items()|list }}",
    "{{ {'items': 5}['items'] }} {{ {'items': 5}.get('items') }}",
    "{{ s.partition(' ') }} {{ s.rpartition('o') }} {{ ','.join(w) }} {{ s.index('w') }}",
    "{{ 'a' is in 'abc' }} {{ [1, 2] == (1, 2) }} {{ {'a': 1} == {'a': 1.0} }} {{ missing == missing2 }}",
    "{{ (n > 2) + 1 }} {{ -t }} {{ +t }} {{ 5 - -3 }} {{ 1 - 1 - 1 }} {{ 2 * 3 + 4 ~ 5 }}",
    "{{ 'a{}b{}'.format(1, s) }} {{ '{0}{1}{0}'.format('x', none) }} {{ '{n}={v!r}'.format(n='k', v='q') }} "
    "{{ '{{}}{}'.format(l) }}{{ ''.format() }}{{ '{:}{!s}'.format(1, 2) }}{{ '{}'.format(missing) }}",
    "{{ '{}'.format() }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{}{0}'.format(1) }}",
    "{{ '{x}'.format(y=1) }}", "{{ '{2}'.format(1) }}", "{{ '{!x}'.format(1) }}",
    "{% if false %}{{ 1|nowhere }}{% elif s is never %}{% endif %}x", "{{ 1|nowhere if e else 'soft' }}",
    "{% if true %}{{ 1|nowhere }}{% endif %}", "{{ 'hard' if true else 2 }}{{ 1|nowhere }}",
    "{% if false %}{% for x in l %}{{ x|nowhere }}{% endfor %}{% endif %}", "{% if e and 1 is odder %}{% endif %}y",
    "{% if false %}{{ l|map('nowhere')|list }}{% endif %}z", "{% if false %}{{ (1 if true)|nowhere }}{% endif %}w",
    "{{ (1|nowhere) + 1 if false }}v", "{{ [1|nowhere if false else 3] }}", "{{ [1|nowhere, 2 if false] }}",
    "{% if %}{% endif %}", "{{ }}", "{% for %}", "{{ 'a }}", "{% endif %}",
    "{% if true %}", "{{ (1 }}", "{{ 1 ) }}", "{{ a b }}", "{# x", "{% raw %}x", "{{ 'x' is is }}",
    "{% set true = 1 %}", "{% for loop in [1] %}{% endfor %}", "{% break %}",
]


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def add(cases, env, template, source, name, case):
    ok, text = jinja_reference.render(env, source, case)
    if not ok:
        raised = text.startswith("TemplateError: ")
        result = {"error": text.removeprefix("TemplateError: ") if raised else None}
    else:
        result = {"text": text}
    cases.append({"template": template, "name": name, "input": case, **result})


def share_inputs(cases):
    """Each input once: conversations are shared by many cases."""
    inputs = []
    for case in cases:
        if case["input"] not in inputs:
            inputs.append(case["input"])
        case["input"] = inputs.index(case["input"])
    return inputs


def write(name, data):
    text = json.dumps(data, indent=1, ensure_ascii=True)
    # The members of a case that is but a few numbers on one line.
    text = re.sub(r"\{\n   (\"template\": [^\n]*)\n   ([^\n]*)\n   (\"(?:sha256|error)\": [^\n]*)\n  \}",
                  r"{\1 \2 \3}", text)
    (FOLDER / name).write_text(text + "\n", encoding="ascii")
    failed = sum("error" in c for c in data["cases"])
    print(f"{len(data['cases'])} cases, {failed} of them fail in jinja2")


def real(env, folder):
    templates, cases = {}, []
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_bytes().decode()
        templates[path.stem] = sha256(source)
        for name, conversation in {**CONVERSATIONS, **REAL_CONVERSATIONS}.items():
            for gen in (True, False) if name in ("one", "turns", "agent") else (True,):
                case = {"bos": "<s>", "eos": "</s>", "gen": gen, **conversation}
                ok, text = jinja_reference.render(env, source, case)
                cases.append({"template": path.stem, "input": case,
                              **({"sha256": sha256(text)} if ok else {"error": None})})
    write("real.json", {
        "made_by": "tools/oracle_template.py --real with jinja2 3.1, of "
                   + pathlib.Path(folder).resolve().name,
        "now": jinja_reference.NOW, "templates": templates, "inputs": share_inputs(cases),
        "cases": cases})


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--real", metavar="FOLDER")
    folder = arguments.parse_args().real
    env = jinja_reference.environment()
    if folder is not None:
        return real(env, folder)
    templates = {p.stem: p.read_text(encoding="utf-8") for p in sorted(FOLDER.glob("*.jinja"))}
    cases = []
    for template, source in templates.items():
        for name, conversation in CONVERSATIONS.items():
            for gen in (True, False) if name in ("one", "turns", "tool call") else (True,):
                case = {"bos": "<s>", "eos": "</s>", "gen": gen, **conversation}
                add(cases, env, template, source, f"{template}: {name}, gen={gen}", case)
    given = {"bos": "<s>", "eos": "</s>", "gen": True, "extra": DATA,
             "messages": CONVERSATIONS["turns"]["messages"]}
    for kind, sources in (("white space", WHITE_SPACE), ("snippet", SNIPPETS)):
        for i, source in enumerate(sources):
            templates[f"{kind} {i}"] = source
            add(cases, env, f"{kind} {i}", source, f"{kind} {i}", given)
    write("cases.json", {
        "made_by": "tools/oracle_template.py with jinja2 3.1", "now": jinja_reference.NOW,
        "templates": templates, "inputs": share_inputs(cases), "cases": cases})


if __name__ == "__main__":
    main()
