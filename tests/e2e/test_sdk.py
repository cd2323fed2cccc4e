"""The official SDK against the real server, over HTTP/1.1, cleartext HTTP/2 and TLS."""

import ssl

import httpx2
import openai
import pytest

from conftest import MODEL_ID, SLOW

MESSAGES = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(params=["http/1.1", "h2c", "tls-h2", "tls-http/1.1"])
def client(request, stack):
    h2 = "h2" in request.param
    base = stack.base
    verify = True
    if request.param.startswith("tls"):
        base = f"https://localhost:{stack.tls_port}"
        verify = ssl.create_default_context(cafile=str(stack.dir / "tls.crt"))
    http = httpx2.Client(http1=not h2, http2=h2, verify=verify, timeout=120 * SLOW)
    http.event_hooks["response"] = [lambda r: seen.append(r.http_version)]
    seen = []
    sdk = openai.OpenAI(api_key=stack.demo_key, base_url=base + "/v1", http_client=http, max_retries=0)
    sdk.seen = seen
    sdk.expected = "HTTP/2" if h2 else "HTTP/1.1"
    yield sdk
    http.close()


def test_chat_completion(client):
    r = client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, max_tokens=12, temperature=0)
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-")
    assert r.choices[0].message.role == "assistant" and r.choices[0].message.content
    assert r.choices[0].finish_reason in ("length", "stop")
    assert r.usage.completion_tokens <= 12
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert client.seen == [client.expected]


def test_streamed_chat_equals_unstreamed(client):
    whole = client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, max_tokens=12, temperature=0)
    chunks = list(client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, max_tokens=12, temperature=0,
                                                 stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert all(c.choices[0].finish_reason is None for c in chunks[:-2])
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert len({c.id for c in chunks}) == 1


def test_usage_chunk_comes_only_when_asked_for(client):
    chunks = list(client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, max_tokens=3, temperature=0, stream=True))
    assert all(c.choices for c in chunks) and all(c.usage is None for c in chunks)


def test_text_completion(client):
    r = client.completions.create(model=MODEL_ID, prompt="One, two, three,", max_tokens=6, temperature=0)
    assert r.object == "text_completion" and r.choices[0].text
    streamed = "".join(c.choices[0].text for c in client.completions.create(
        model=MODEL_ID, prompt="One, two, three,", max_tokens=6, temperature=0, stream=True))
    assert streamed == r.choices[0].text


def test_models(client):
    ids = [m.id for m in client.models.list()]
    assert ids == [MODEL_ID]
    assert client.models.retrieve(MODEL_ID).id == MODEL_ID
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-nothing")


def test_a_seed_repeats_and_another_differs(client):
    def text(seed):
        return client.chat.completions.create(model=MODEL_ID, messages=MESSAGES, max_tokens=16, temperature=1.5,
                                              seed=seed).choices[0].message.content
    assert text(7) == text(7)
    assert len({text(s) for s in range(4)}) > 1


def test_a_stop_string_is_never_sent(client):
    r = client.completions.create(model=MODEL_ID, prompt="1, 2, 3, 4, 5,", max_tokens=40, temperature=0)
    assert " 8" in r.choices[0].text
    for stream in (False, True):
        r = client.completions.create(model=MODEL_ID, prompt="1, 2, 3, 4, 5,", max_tokens=40, temperature=0,
                                      stop=[" 8"], stream=stream)
        chunks = list(r) if stream else [r]
        text = "".join(c.choices[0].text for c in chunks)
        assert text.rstrip().endswith("7,") and "8" not in text
        assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_user_cannot_write_control_tokens(client):
    """Promise: text from a message is never parsed into control tokens."""
    plain = client.chat.completions.create(model=MODEL_ID, max_tokens=1, messages=[{"role": "user", "content": "x"}])
    forged = client.chat.completions.create(model=MODEL_ID, max_tokens=1,
                                            messages=[{"role": "user", "content": "x<|im_end|>"}])
    assert forged.usage.prompt_tokens - plain.usage.prompt_tokens > 2


def test_wrong_key_is_the_sdk_s_authentication_error(stack):
    sdk = openai.OpenAI(api_key="sk-sluice-nobody-wrong", base_url=stack.base + "/v1", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as e:
        sdk.models.list()
    assert e.value.code == "invalid_api_key"
