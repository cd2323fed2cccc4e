"""Every answer and stream event validates against schemas made from OpenAI's own API description."""

import json
import time
from pathlib import Path

import httpx2
import jsonschema
import pytest

from conftest import MODEL_ID, ROOT, SLOW, sse_events

SCHEMAS = ROOT / "tests/schemas"


def validate(name, value):
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize("fields", [{}, {"temperature": 1, "seed": 3}, {"stop": "e"}, {"max_completion_tokens": 3}],
                         ids=str)
def test_chat_completion(stack, fields):
    r = stack.chat(**{**{"max_tokens": 3}, **fields} if "max_completion_tokens" not in fields else
                   {**fields, "max_tokens": None})
    assert r.status_code == 200, r.text
    validate("chat.completion", r.json())


@pytest.mark.parametrize("include_usage", [False, True])
def test_chat_stream(stack, include_usage):
    r = stack.chat(max_tokens=5, stream=True, stream_options={"include_usage": include_usage})
    assert r.headers["content-type"].startswith("text/event-stream")
    assert r.headers["cache-control"] == "no-cache" and r.headers["x-accel-buffering"] == "no"
    events = sse_events(r.text)
    assert events.pop() == "[DONE]"
    if include_usage:
        validate("chat.completion.chunk.usage", events.pop())
    for e in events:
        validate("chat.completion.chunk", e)


def test_text_completion(stack):
    body = {"model": MODEL_ID, "prompt": "a b c", "max_tokens": 4}
    r = stack.post("/v1/completions", body)
    validate("completion", r.json())
    events = sse_events(stack.post("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}).text)
    assert events.pop() == "[DONE]"
    assert events[-1]["choices"] == [] and events[-1]["usage"]
    for e in events:
        validate("completion.chunk", e)


def test_models(stack):
    h = {"authorization": f"Bearer {stack.demo_key}"}
    validate("models", httpx2.get(stack.base + "/v1/models", headers=h).json())
    validate("model", httpx2.get(f"{stack.base}/v1/models/{MODEL_ID}", headers=h).json())


def test_errors(stack):
    h = {"authorization": f"Bearer {stack.demo_key}"}
    for r in (httpx2.get(stack.base + "/v1/models"), httpx2.get(stack.base + "/nope", headers=h),
              stack.chat(temperature=9), stack.chat(model="x")):
        validate("error", r.json())


def test_usage_page(stack):
    stack.chat(max_tokens=1)
    for extra in ({}, {"bucket_width": "1m", "limit": 5}, {"group_by[]": "model"}, {"group_by": ["project_id", "api_key_id"]}):
        r = httpx2.get(stack.base + "/v1/organization/usage/completions",
                       params={"start_time": int(time.time()) - 7200, **extra},
                       headers={"authorization": f"Bearer {stack.demo_key}"})
        assert r.status_code == 200, r.text
        validate("usage.completions", r.json())


def test_utf8_is_never_broken(stack):
    """Each event's text is valid on its own, and the parts are the whole."""
    for seed in range(3):
        body = dict(max_tokens=60, seed=seed, temperature=1.9)
        text = "Antworte mit Emojis: \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u4f60\u597d \u017elu\u0165ou\u010dk\u00fd"
        whole = stack.chat(text, **body).json()["choices"][0]["message"]["content"]
        events = sse_events(stack.chat(text, **body, stream=True).text)
        parts = [e["choices"][0]["delta"].get("content") or "" for e in events[:-1]]
        assert "".join(parts) == whole


def test_health_and_metrics(stack):
    for path in ("/health", "/livez", "/readyz"):
        for port in (stack.port, stack.admin_port):
            assert httpx2.get(f"http://127.0.0.1:{port}{path}").status_code == 200
    text = httpx2.get(f"http://127.0.0.1:{stack.admin_port}/metrics").text
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                 "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total"):
        assert f"# TYPE {name} " in text
    h = {"authorization": f"Bearer {stack.demo_key}"}
    assert httpx2.get(f"http://127.0.0.1:{stack.admin_port}/v1/models", headers=h).status_code == 404


def test_request_id_headers(stack):
    r = stack.chat(max_tokens=1)
    assert r.headers["x-request-id"].removeprefix("req_") == r.json()["id"].removeprefix("chatcmpl-")
    assert int(r.headers["openai-processing-ms"]) >= 0
    for kind in ("requests", "tokens"):
        for what in ("limit", "remaining", "reset"):
            assert f"x-ratelimit-{what}-{kind}" in r.headers
