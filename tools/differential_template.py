#!/usr/bin/env python3
"""Compares our chat template interpreter with jinja2 on random templates.

    python3 -m venv V && V/bin/pip install jinja2
    V/bin/python tools/differential_template.py [--n 20000] [--seed 1]

Builds the interpreter as a shared library in a temporary folder. A difference is a template that
both render, to different texts, or that one renders and the other doesn't; templates that we refuse
at load are counted apart. Exit status 1 when there is a difference."""

import argparse
import collections
import ctypes
import json
import pathlib
import random
import re
import subprocess
import tempfile
import warnings

import jinja_reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNSUPPORTED = "UNSUPPORTED"


class Reason(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 320), ("param", ctypes.c_char * 96)]


class Rendered(ctypes.Structure):
    _fields_ = [
        ("text", ctypes.POINTER(ctypes.c_char)),
        ("len", ctypes.c_size_t),
        ("spans", ctypes.c_void_p),
        ("n_spans", ctypes.c_size_t),
    ]


class Input(ctypes.Structure):
    _fields_ = [
        ("messages", ctypes.c_void_p),
        ("tools", ctypes.c_void_p),
        ("documents", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("bos_token", ctypes.c_char_p),
        ("eos_token", ctypes.c_char_p),
        ("add_generation_prompt", ctypes.c_bool),
        ("continue_final_message", ctypes.c_bool),
        ("now_s", ctypes.c_longlong),
        ("output_max_bytes", ctypes.c_size_t),
    ]


class Ours:
    def __init__(self, folder):
        lib = pathlib.Path(folder) / "template.so"
        sources = sorted(ROOT.glob("engine/text/jinja_*.c")) + sorted(
            ROOT.glob("engine/text/template*.c"))
        sources += [ROOT / "base" / f"{n}.c" for n in ("arena", "buf", "json", "status", "utf8")]
        subprocess.run(
            ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-shared", "-fPIC", f"-I{ROOT}"]
            + ["-o", lib]
            + sources
            + ["-ljansson", "-lutf8proc", "-lm"],
            check=True,
        )
        self.lib = ctypes.CDLL(str(lib))
        self.jansson = ctypes.CDLL("libjansson.so.4")
        self.jansson.json_loadb.restype = ctypes.c_void_p
        self.jansson.json_loadb.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t,
                                            ctypes.c_void_p]
        self.lib.status_name.restype = ctypes.c_char_p

    def json(self, value):
        if value is None:
            return None
        text = json.dumps(value).encode()
        return self.jansson.json_loadb(text, len(text), 0, None)  # small, and left to the process

    def render(self, source, case):
        """(True, text) or (False, "STATUS: message")."""
        template, why, out = ctypes.c_void_p(), Reason(), Rendered()
        text = source.encode()
        status = self.lib.template_new(text, ctypes.c_size_t(len(text)), ctypes.byref(template),
                                       ctypes.byref(why))
        if status == 0:
            given = Input(
                self.json(case.get("messages", [])), self.json(case.get("tools")),
                self.json(case.get("documents")), self.json(case.get("extra", {})),
                case.get("bos", "").encode(), case.get("eos", "").encode(),
                case.get("gen", False), case.get("continue", False), jinja_reference.NOW, 0,
            )
            status = self.lib.template_render(template, ctypes.byref(given), ctypes.byref(out),
                                              ctypes.byref(why))
            self.lib.template_free(template)
        if status != 0:
            return False, self.lib.status_name(status).decode() + ": " + why.text.decode(
                errors="replace")
        rendered = ctypes.string_at(out.text, out.len).decode()
        self.lib.rendered_dispose(ctypes.byref(out))
        return True, rendered


INPUT = {
    "messages": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "Straße 'x' \"y\" <b> 日本 é"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"a": 1}}]},
        {"role": "tool", "content": "a\nb\n\nc", "id": 7},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image"}]},
    ],
    "extra": {"n": 3, "f": 2.5, "s": "Hello wORLD, ab-cd\tx", "l": [3, 1, 2, 1], "t": True,
              "z": None, "d": {"b": 2, "A": 1, "c": None}, "w": ["b", "A", "a", "", "C"], "e": "",
              "big": 12345678901234, "neg": -7, "tiny": 1e-7, "nested": [[1, "x"], [2, "y"]]},
    "bos": "<s>",
    "eos": "</s>",
    "gen": True,
}

# A grammar by kind: s text, l list, n number, d dict, b truth. {x} is an expression of kind x, {a} of
# any kind. Now and then a hole is filled with the wrong kind, because errors must agree too.
ATOMS = {
    "s": ["s", "e", "bos_token", "messages[1].content", "messages[3].content", "'a'", "'b c'",
          "' x\\n'", "''", "'é日'", "\"q'\"", "'a' 'b'", "'ǅßΣ'", "'A-b (c)'", "'\\t'",
          "'one two  three'", "'l1\\nl2\\n'", "w[0]", "x", "'\\u00e9\\x41\\q'", "'OΔΟΣ ΣΑΣ'", "'ŉﬁ'"],
    "l": ["l", "w", "nested", "messages", "[]", "[1, 2, 3]", "['b', 'a']", "(1, 'z')", "()",
          "range(4)", "range(1, 6, 2)", "range(5, 0, -2)", "range(n)", "['x', 'X', 'y']", "(1,)"],
    "n": ["n", "f", "big", "neg", "tiny", "0", "1", "2", "7", "1.5", "0.1", "1e20", "10 ** 2",
          "1_000", "0x1F", "2.5e-7", "123456.789", "loop.index", "ns.v", "true", "0.5", "2.675"],
    "d": ["d", "messages[0]", "messages[2]", "{}", "{'k': 1, 'j': [2]}", "dict(a=1)",
          "{'b': 1.0, 'a': none}", "{1: 'x', 'y': true}"],
    "b": ["t", "true", "false", "z", "none", "missing", "loop.last", "add_generation_prompt"],
}
RULES = {
    "s": ["{s}|trim", "{s}|trim('a')", "{s}|upper", "{s}|lower", "{s}|title", "{s}|capitalize",
          "{s}|replace('a', 'bb')", "{s}|replace('', '.')", "{s}|replace('l', 'L', 1)", "{a}|tojson",
          "{d}|tojson(indent=2)", "{l}|tojson(indent=1)", "{s}|tojson(ensure_ascii=True)",
          "{d}|tojson(separators=(',', ':'))", "{d}|tojson(sort_keys=true)", "{a}|string", "{s}|e",
          "{s}|safe", "{s}|escape|safe", "({s}|safe) + {s}", "{s}|indent", "{s}|indent(2, true)",
          "{s}|indent('> ', blank=true)", "{l}|join", "{l}|join(', ')", "{w}|join('-')",
          "{m}|join('-', attribute='role')", "{s}|first", "{s}|last", "{s}|reverse", "{s}.strip()",
          "{s}.lstrip()", "{s}.rstrip()", "{s}.strip('a ')", "{s}.upper()", "{s}.lower()",
          "{s}.title()", "{s}.capitalize()", "{s}.replace('a', 'X')", "{s}.replace('', '-', 2)",
          "{s}.replace('l', '', 1)", "{s}.join(['p', 'q'])", "{s}.join({s})", "{s}.split('l')[-1]",
          "{s}.removeprefix('a')", "{s}.removesuffix('b')", "{s}[1:]", "{s}[:2]", "{s}[::-1]",
          "{s}[::2]", "{s}[-2:]", "{s}[5:1:-2]", "{s}[0]", "{s}[-1]", "{s}[n:]", "{s} ~ {a}",
          "{s} + {s}", "{s} * 2", "{a} ~ {a} ~ {a}", "{s} if {b} else {s}", "m({a})", "m({a}, b={a})",
          "{a}|default({s})", "{a}|d({s}, true)", "{m}[0].role", "{w}|first", "{w}|max", "{w}|min",
          "{s} or {s}", "{s} and {s}", "{d}.get('b')|string", "{l}|map('string')|join('+')",
          "strftime_now('%Y-%m-%d %H:%M')", "{s}|string|length|string", "{s} if {b}",
          "{s}|trim|e ~ {s}"],
    "l": ["{l}|list", "{s}|list", "{d}|list", "{d}|items|list", "{d}|dictsort",
          "{d}|dictsort(by='key', reverse=true)", "{m}|selectattr('role')|list",
          "{m}|selectattr('role', 'equalto', 'user')|list", "{m}|rejectattr('content', 'none')|list",
          "{m}|selectattr('id', 'defined')|list", "{l}|select|list", "{l}|select('string')|list",
          "{l}|reject('odd')|list", "[1, 2, 3]|select('gt', 1)|list", "{w}|map('upper')|list",
          "{m}|map(attribute='role')|list", "{m}|map(attribute='id', default='-')|list",
          "{l}|map('default', 'q')|list", "{w}|unique|list", "{w}|sort", "{w}|sort(reverse=true)",
          "{w}|sort(case_sensitive=true)", "{m}|sort(attribute='role')",
          "{m}|sort(attribute='role,id')", "{l}|reverse|list", "{l}[1:]", "{l}[:2]", "{l}[::-1]",
          "{l}[::2]", "{l}[-2:]", "{l}[5:1:-2]", "{l} + {l}", "{l} * 2", "[{a}, {a}]", "({a}, {a})",
          "{s}.split()", "{s}.split(' ')", "{s}.split('l')", "{s}.split(none, 1)",
          "{s}.split('a', 1)", "{s}.rsplit(' ', 1)", "{s}.rsplit(none, 1)", "{s}.rsplit()",
          "{s}.splitlines()", "{s}.splitlines(true)", "{s}.partition(' ')", "{s}.rpartition('l')",
          "{d}.items()", "{d}.keys()", "{d}.values()", "{l} if {b} else {l}", "{l} or {l}",
          "{d}.keys()|list", "{d}.items()|list", "{w}|unique(case_sensitive=true)|list",
          "{m}|unique(attribute='role')|map(attribute='role')|list", "[{n}, {n}]|sort",
          "{l}|reverse"],
    "n": ["{l}|length", "{s}|length", "{d}|count", "{n}|int", "{s}|int", "{s}|int(9)", "{n}|float",
          "{s}|float(1.5)", "{n}|abs", "{n}|round", "{n}|round(1)", "{n}|round(1, 'floor')",
          "{n}|round(0, 'ceil')", "{n}|round(-1)", "[{n}, {n}]|sum", "[{n}, {n}]|min",
          "[{n}, {n}]|max", "[{n}]|sum(start=1)", "{s}.find('o')", "{s}.find('o', 5)",
          "{s}.rfind('o')", "{s}.count('l')", "{s}.count('')", "{l}.count(1)", "{l}.index(1)",
          "{n} + {n}", "{n} - {n}", "{n} * {n}", "{n} / {n}", "{n} // {n}", "{n} % {n}", "{n} ** 2",
          "2 ** {n}", "-{n}", "+{n}", "{n} if {b} else {n}", "'12'|int", "' 4_2 '|int",
          "'0x1f'|int(0, 16)", "'1e3'|float", "'1.9'|int", "range({n})|length", "{n} or {n}",
          "{m}|map(attribute='id', default=1)|sum", "{n} + {n} * {n}", "{n} - {n} - {n}",
          "-{n} ** 2"],
    "d": ["{'k': {a}, 'j': {a}}", "dict(a={a})", "{m}[0]", "{m}|first", "{m}|last",
          "{d} if {b} else {d}", "namespace(b={a})", "{d}.copy()", "{{s}: {n}, {n}: {s}}"],
    "b": ["{a} == {a}", "{a} != {a}", "{n} < {n}", "{n} <= {n}", "{s} > {s}", "{l} >= {l}",
          "{n} < {n} < {n}", "{s} in {s}", "{s} not in {s}", "{a} in {l}", "{s} in {d}",
          "{b} and {a}", "{b} or {a}", "not {a}", "{a} is defined", "{a} is not defined",
          "{a} is none", "{a} is string", "{a} is number", "{a} is integer", "{a} is float",
          "{a} is boolean", "{a} is mapping", "{a} is sequence", "{a} is iterable", "{a} is true",
          "{a} is false", "{a} is eq 1", "{a} is equalto('a')", "{n} is gt 1", "{n} is lt(2)",
          "{n} is odd", "{n} is even", "{n} is divisibleby 2", "{a} is lower", "{a} is upper",
          "{a} is callable", "{a} is sameas none", "{a} is sameas(true)", "{a} is in [1, 'a']",
          "{s}.startswith('a')", "{s}.startswith(('H', 'b'))", "{s}.endswith('x')", "{s}.isdigit()",
          "{s}.isalpha()", "{s}.isalnum()", "{s}.isspace()", "{s}.isupper()", "{s}.islower()",
          "{l}.append(1)", "{d}.missing", "{d}['k']", "{d}.k.j", "{l}[10]", "{l}[0]", "{l}[-1]",
          "{d}.items", "{d}['items']", "{s}.nothing", "{b}.x", "{d}.get({s}, {a})", "{l}[n]",
          "{b} == true", "{a}|default(none) is none", "{s} is escaped", "{l}|first", "{l}|last",
          "{l}.0", "{m}[2].tool_calls[0].arguments.a", "loop.previtem", "loop.nextitem is defined",
          "loop.cycle({a}, {a})", "loop.changed({a})", "({l}, {s}) < ({l}, {s})"],
}
HOLES = {"{w}": ["w", "['b', 'a', 'B']", "{s}.split()", "'x y z'.split()"], "{m}": ["messages"]}


class Bounded:
    """jinja2 with our limit on integers, which also keeps Python from computing 7 ** big."""

    def __init__(self, env):
        self.binop_table = env.binop_table
        env.intercepted_binops = frozenset(["+", "-", "*", "**", "//", "%", "/"])
        env.call_binop = self.call_binop

    def call_binop(self, context, operator, left, right):
        if operator == "**" and isinstance(right, int) and right > 100:
            raise OverflowError("exponent")
        if operator == "%" and isinstance(left, str):
            raise TypeError("% on a string")
        if operator == "*" and 10**7 < max(v for v in (left, right, 0) if isinstance(v, int)):
            if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
                raise OverflowError("repetition")
        value = self.binop_table[operator](left, right)
        if isinstance(value, complex) or (isinstance(value, int) and abs(value) >= 2**63):
            raise OverflowError("integer")
        return value


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, values):
        return self.rng.choice(values)

    def hole(self, mark, depth):
        if mark in HOLES:
            return self.fill(self.pick(HOLES[mark]), depth)
        kind = mark[1]
        if kind == "a" or self.rng.random() < 0.02:
            kind = self.pick("slndb")
        text = self.expr(depth, kind)
        return text if self.rng.random() < 0.1 else f"({text})"

    def fill(self, rule, depth):
        return re.sub(r"\{[wmslndba]\}", lambda m: self.hole(m.group(), depth - 1), rule)

    def expr(self, depth, kind=None):
        kind = kind or self.pick("ssllnndbb")
        if depth <= 0 or self.rng.random() < 0.1:
            return self.pick(ATOMS[kind])
        return self.fill(self.pick(RULES[kind]), depth)

    def sign(self):
        return self.pick(["", "", "", "-", "+"])

    def tag(self, body):
        return "{%" + self.sign() + " " + body + " " + self.sign() + "%}"

    def text(self):
        return self.pick(["", " ", "\n", "\n  ", "a", "b \n", "  \t", "x\n\n", " { ", "%} ", "\r\n",
                          "\u00a0\n ", "# }} "])

    def block(self, depth):
        parts = [self.text()]
        for _ in range(self.rng.randint(1, 3)):
            parts += [self.statement(depth), self.text()]
        return "".join(parts)

    def statement(self, depth):
        kind = self.rng.random()
        if depth == 0 or kind < 0.35:
            return "{{" + self.sign() + " " + self.expr(2) + " " + self.pick(["", "-"]) + "}}"
        body = self.block(depth - 1)
        if kind < 0.45:
            return self.tag("if " + self.expr(2)) + body + self.tag("else") + "E" + self.tag("endif")
        if kind < 0.52:
            return (self.tag("if " + self.expr(1)) + body + self.tag("elif " + self.expr(1)) + "L"
                    + self.tag("endif"))
        if kind < 0.66:
            head = "for x in " + self.pick(["l", "w", "messages", "range(3)", "d", "s", "missing",
                                            "nested", "[]", "w|map('upper')"])
            if self.rng.random() < 0.3:
                head += " if " + self.pick(["x", "x is string", "x != 1", "x|length"])
            stop = self.pick(["", "", self.tag("if loop.index > 1") + self.tag("break")
                              + self.tag("endif"), self.tag("if loop.first") + self.tag("continue")
                              + self.tag("endif")])
            return self.tag(head) + stop + body + self.tag("else") + "none" + self.tag("endfor")
        if kind < 0.72:
            return self.tag("for a, b in " + self.pick(["d.items()", "nested", "d|dictsort", "l"])
                            ) + "{{ a }}={{ b }}" + body + self.tag("endfor")
        if kind < 0.82:
            return self.tag("set x = " + self.expr(2)) + body
        if kind < 0.86:
            return self.tag("set ns.v = " + self.expr(1)) + "{{ ns.v }}"
        if kind < 0.90:
            return self.tag(self.pick(["set x", "set x | trim", "set x | upper | replace('A', '')"])
                            ) + body + self.tag("endset") + "[{{ x }}]"
        if kind < 0.93:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(2)"])) + body + self.tag(
                "endfilter")
        if kind < 0.95:
            return self.tag("with x = " + self.expr(1)) + body + self.tag("endwith")
        if kind < 0.97:
            return "{#" + self.sign() + " c " + self.sign() + "#}" + body
        if kind < 0.985:
            return self.tag("raw") + self.text() + "{{ x }}" + self.tag("endraw")
        return self.tag("generation") + body + self.tag("endgeneration")

    def template(self):
        head = "{%- set ns = namespace(v=0) -%}{%- macro m(a, c, b='B') -%}<{{ a }}{{ b }}{{ c }}" \
               "{{ x }}>{%- endmacro -%}"
        if self.rng.random() < 0.5:
            return head + "{{ " + self.expr(self.rng.randint(1, 4)) + " }}"
        return head + self.block(2)


def left_out(want, got):
    """Why a pair says nothing about us; None when it must agree."""
    text = want[1].lower()
    if want[0] and (" at 0x" in text or "<function" in text or "<built-in" in text or " object t 0x" in text):
        return "left out: prints an address"
    if want[0] and "markup(" in text:
        return "left out: repr of markup"
    if not got[0] and "64 bits" in got[1]:
        return "left out: integer over 64 bits"
    if not got[0] and "cannot be sliced" in got[1]:
        return "left out: a slice of a constant that has none is undefined for jinja2"
    return None


def main():
    warnings.simplefilter("ignore", SyntaxWarning)  # from the code that jinja2 generates
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--n", type=int, default=20000)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--show", type=int, default=20)
    args = args.parse_args()
    env = jinja_reference.environment()
    Bounded(env)
    counts = collections.Counter()
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(folder)
        maker = Maker(random.Random(args.seed))
        for _ in range(args.n):
            source = maker.template()
            want = jinja_reference.render(env, source, INPUT)
            got = ours.render(source, INPUT)
            why = left_out(want, got)
            if why is not None and want != got:
                counts[why] += 1
                continue
            if not got[0] and got[1].startswith(UNSUPPORTED):
                counts["refused at load"] += 1
            elif want[0] != got[0] or (want[0] and want[1] != got[1]):
                counts["different"] += 1
                differences.append((source, want, got))
            else:
                counts["same text" if want[0] else "fail in both"] += 1
    for source, want, got in sorted(differences, key=lambda d: len(d[0]))[: args.show]:
        print(f"template: {source!r}\n  jinja2: {want!r}\n  ours:   {got!r}")
    print(dict(counts))
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
