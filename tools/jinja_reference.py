"""The reference for our chat template interpreter: jinja2 set up as Hugging Face's
apply_chat_template sets it up. Needs the PyPI package jinja2 (3.1)."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1735689600  # 2025-01-01 00:00:00 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: prints its body as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(fmt):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(fmt)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(env, source, case):
    """(True, text) or (False, message)."""
    try:
        text = env.from_string(source).render(
            **case.get("extra", {}),
            bos_token=case.get("bos", ""),
            eos_token=case.get("eos", ""),
            messages=case.get("messages", []),
            add_generation_prompt=case.get("gen", False),
        )
        return True, text
    except Exception as e:  # whatever a template makes Python raise is a failed render
        return False, f"{type(e).__name__}: {e}"
