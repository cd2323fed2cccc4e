"""The reference for our chat template interpreter: jinja2 set up as Hugging Face's
apply_chat_template sets it up. Needs the PyPI package jinja2 (3.1).

A case is what a template gets: messages, tools, documents, extra (further variables), bos, eos, gen
(add_generation_prompt), continue (continue_final_message)."""

import copy
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = 1735689600  # 2025-01-01 00:00:00 UTC
TAG = "CONTINUE_FINAL_MESSAGE_TAG "  # apply_chat_template's own: some templates look for it


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


def tag_last(messages):
    """A copy with the tag after the last message's text, and that text."""
    messages = copy.deepcopy(messages)
    last = messages[-1]
    if isinstance(last["content"], list):
        last = next(p for p in reversed(last["content"]) if "text" in p)
    name = "text" if "text" in last else "content"
    text = last[name]
    last[name] = text + TAG
    return messages, text


def cut_at_tag(rendered, text):
    if text.strip() not in rendered:
        raise ValueError("the last message is not in the text")
    at = rendered.rindex(TAG.strip())
    return rendered[:at] if rendered[at:].startswith(TAG) else rendered[:at].rstrip()


def render(env, source, case):
    """(True, text) or (False, message)."""
    messages, last = case.get("messages", []), None
    try:
        if case.get("continue"):
            messages, last = tag_last(messages)
        text = env.from_string(source).render(
            **case.get("extra", {}),
            bos_token=case.get("bos", ""),
            eos_token=case.get("eos", ""),
            messages=messages,
            tools=case.get("tools"),
            documents=case.get("documents"),
            add_generation_prompt=case.get("gen", False),
        )
        return True, text if last is None else cut_at_tag(text, last)
    except Exception as e:  # whatever a template makes Python raise is a failed render
        return False, f"{type(e).__name__}: {e}"
