"""What a chat template says and gets, over HTTP: a model file whose template is one of ours."""

import json
import shutil
import subprocess

import pytest

from conftest import BIN, MODEL, MODEL_ID, SLOW, Stack, scratch

# Says what it was given, so that the length of the prompt shows it.
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'system' and loop.index > 1 %}{{ raise_exception('System message must come first.') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ 'doc ' * (documents or [])|length }}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{{ 'hush ' * 20 if quiet }}"
)


def with_template(folder, template):
    """A copy of the model file with another template in the place of its own."""
    copy = folder / MODEL.name
    shutil.copyfile(MODEL, copy)
    with open(copy, "r+b") as f:
        head = f.read(64 << 20)
        key = head.index(b"tokenizer.chat_template")
        at = key + len(b"tokenizer.chat_template") + 4  # after the key: the value's type, then its length
        room = int.from_bytes(head[at:at + 8], "little")
        padding = room - len(template.encode()) - len("{##}")
        assert padding >= 0, "the template is longer than the model's own"
        f.seek(at + 8)
        f.write(template.encode() + b"{#" + b" " * padding + b"#}")
    return copy


@pytest.fixture(scope="module")
def templated():
    base = scratch("templates")
    stack = Stack(base / "var", with_template(base, TEMPLATE))
    try:
        yield stack.start()
    finally:
        stack.stop()
        shutil.rmtree(base, ignore_errors=True)


def prompt_tokens(stack, **fields):
    r = stack.chat("Hi", max_tokens=1, **fields)
    assert r.status_code == 200, r.text
    return r.json()["usage"]["prompt_tokens"]


def test_what_the_template_raises_is_a_400_in_its_own_words(templated):
    r = templated.chat(messages=[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])
    assert r.status_code == 400
    error = r.json()["error"]
    assert error["message"] == "System message must come first."
    assert error["param"] == "messages" and error["type"] == "invalid_request_error"
    assert templated.rows() == []  # nothing was reserved or billed


def test_the_template_gets_what_the_request_gives_it(templated):
    plain = prompt_tokens(templated)
    assert prompt_tokens(templated, chat_template_kwargs={"quiet": True}) > plain + 15
    assert prompt_tokens(templated, chat_template_kwargs={"quiet": False}) == plain
    assert prompt_tokens(templated, documents=[{"text": "x"}] * 5) > plain
    closed = prompt_tokens(templated, add_generation_prompt=False)
    assert closed < plain
    # Without <|im_end|> and the line feed after it.
    assert prompt_tokens(templated, continue_final_message=True) == closed - 2


@pytest.mark.parametrize("fields,param", [
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": "quiet"}, "chat_template_kwargs"),
    ({"documents": ["text"]}, "documents[0]"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
])
def test_what_does_not_fit_is_a_400_that_names_it(templated, fields, param):
    r = templated.chat(**fields)
    assert r.status_code == 400 and r.json()["error"]["param"] == param


def test_render_takes_tools_documents_and_kwargs(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ tools[0].name }} {{ documents[0].text }} {{ n }}"
                        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{{ '>' if add_generation_prompt }}")
    for name, value in {"tools": [{"name": "f"}], "documents": [{"text": "d"}], "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}.items():
        (tmp_path / name).write_text(json.dumps(value))
    args = [BIN, "render", "--model", MODEL, "--template", template, "--kwargs", '{"n": 3}']
    for name in ("tools", "documents", "messages"):
        args += [f"--{name}", tmp_path / name]

    def render(*more):
        done = subprocess.run([str(a) for a in (*args, *more)], capture_output=True, text=True, timeout=60 * SLOW)
        return done.stdout or done.stderr

    assert render() == "f d 3<user>ab</>>"
    assert render("--no-generation-prompt") == "f d 3<user>ab</>"
    assert render("--continue-final-message") == "f d 3<user>ab"
    assert render("--as-is").startswith("f d 3<user>[{'type': 'text'")
    assert "chat_template_kwargs" in render("--kwargs", '{"tools": 1}')


def test_control_tokens_in_raw_prompts_need_their_scope(stack):
    plain = stack.new_key("raw-plain")
    special = stack.new_key("raw-special", scopes="inference,control-tokens")

    def prompt_tokens(key, prompt):
        r = stack.post("/v1/completions", {"model": MODEL_ID, "prompt": prompt, "max_tokens": 1}, key)
        return r.json()["usage"]["prompt_tokens"] if r.status_code == 200 else r

    assert prompt_tokens(special, "Hi<|im_end|>") < prompt_tokens(plain, "Hi<|im_end|>")
    assert prompt_tokens(special, "Hi there") == prompt_tokens(plain, "Hi there")
    assert prompt_tokens(special, [1, 19556]) == 2  # <|im_start|>, and some word
    r = prompt_tokens(plain, [1, 19556])
    assert r.status_code == 400 and r.json()["error"]["param"] == "prompt"
    assert stack.chat("Hi<|im_end|>", special).json()["usage"] == stack.chat("Hi<|im_end|>", plain).json()["usage"]
