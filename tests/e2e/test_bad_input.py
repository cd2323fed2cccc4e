"""Every bad input is a 4xx in OpenAI's shape, and nothing is reserved or billed."""

import json
import socket
import subprocess
import sys
import threading
import time

import httpx2
import pytest

from conftest import MODEL, MODEL_ID, ROOT, SLOW, wait_for

GOOD = {"model": MODEL_ID, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def body(**changes):
    b = {**GOOD, **changes}
    return json.dumps({k: v for k, v in b.items() if v is not ...}).encode()


NESTED = b'{"model":"' + MODEL_ID.encode() + b'","messages":' + b"[" * 200 + b"]" * 200 + b"}"
LONG = "word " * 9000

# name, path, body, status, param (None: no field), code (None: any)
CASES = [
    ("malformed", "chat/completions", b'{"model": ', 400, None, None),
    ("empty body", "chat/completions", b"", 400, None, None),
    ("not an object", "chat/completions", b"[1]", 400, None, None),
    ("unknown model", "chat/completions", body(model="gpt-9"), 404, "model", "model_not_found"),
    ("no model", "chat/completions", body(model=...), 400, "model", None),
    ("model not a string", "chat/completions", body(model=5), 400, "model", None),
    ("no messages", "chat/completions", body(messages=...), 400, "messages", None),
    ("empty messages", "chat/completions", body(messages=[]), 400, "messages", None),
    ("messages not a list", "chat/completions", body(messages="hi"), 400, "messages", None),
    ("message not an object", "chat/completions", body(messages=["hi"]), 400, "messages[0]", None),
    ("unknown role", "chat/completions", body(messages=[{"role": "king", "content": "x"}]), 400, "messages[0].role", None),
    ("content a number", "chat/completions", body(messages=[{"role": "user", "content": 3}]), 400, "messages[0].content", None),
    ("image part", "chat/completions",
     body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), 400,
     "messages[0].content[0].type", None),
    ("temperature a string", "chat/completions", body(temperature="hot"), 400, "temperature", None),
    ("temperature 3", "chat/completions", body(temperature=3), 400, "temperature", None),
    ("top_p 2", "chat/completions", body(top_p=2), 400, "top_p", None),
    ("prompt over the context", "chat/completions", body(messages=[{"role": "user", "content": LONG}]), 400,
     "messages", "context_length_exceeded"),
    ("max_tokens 0", "chat/completions", body(max_tokens=0), 400, "max_tokens", None),
    ("max_tokens above the context", "chat/completions", body(max_tokens=10**6), 400, "max_tokens", None),
    ("max_tokens a float", "chat/completions", body(max_tokens=1.5), 400, "max_tokens", None),
    ("n a million", "chat/completions", body(n=10**6), 400, "n", None),
    ("logit_bias out of the vocabulary", "chat/completions", body(logit_bias={"5": 1, "10000000": 1}), 400,
     "logit_bias", None),
    ("logit_bias no id", "chat/completions", body(logit_bias={"word": 1}), 400, "logit_bias", None),
    ("logit_bias 2000 entries", "chat/completions", body(logit_bias={str(i): 1 for i in range(2000)}), 400,
     "logit_bias", None),
    ("stop_token_ids out of the vocabulary", "chat/completions", body(stop_token_ids=[10**7]), 400,
     "stop_token_ids", None),
    ("top_logprobs 1000", "chat/completions", body(logprobs=True, top_logprobs=1000), 400, "top_logprobs", None),
    ("top_logprobs alone", "chat/completions", body(top_logprobs=2), 400, "top_logprobs", None),
    ("repetition_penalty 0", "chat/completions", body(repetition_penalty=0), 400, "repetition_penalty", None),
    ("min_tokens above max_tokens", "chat/completions", body(min_tokens=3), 400, "min_tokens", None),
    ("tools", "chat/completions", body(tools=[{"type": "function", "function": {"name": "f"}}]), 400, "tools",
     "unsupported_parameter"),
    ("stop too many", "chat/completions", body(stop=["a"] * 5), 400, "stop", None),
    ("stop 10,000", "chat/completions", body(stop=["a"] * 10000), 400, "stop", None),
    ("stop empty", "chat/completions", body(stop=[""]), 400, "stop", None),
    ("stream a string", "chat/completions", body(stream="yes"), 400, "stream", None),
    ("stream_options without stream", "chat/completions", body(stream_options={"include_usage": True}), 400,
     "stream_options", None),
    ("seed a string", "chat/completions", body(seed="x"), 400, "seed", None),
    ("nesting", "chat/completions", NESTED, 400, None, None),
    ("invalid UTF-8", "chat/completions", body().replace(b"hi", b"h\xff"), 400, None, None),
    ("raw NUL", "chat/completions", body().replace(b"hi", b"h\x00"), 400, None, None),
    ("escaped NUL", "chat/completions", body().replace(b"hi", b"h\\u0000"), 400, None, None),
    ("temperature 1e400", "chat/completions", b'{"model":"m","temperature":1e400}', 400, "temperature", "invalid_value"),
    ("seed 2^63", "chat/completions", body(seed=2**63), 400, "seed", "invalid_value"),
    ("key twice", "chat/completions", b'{"model":"a","model":"b"}', 400, None, None),
    ("lone surrogate", "chat/completions", body().replace(b"hi", b"\\ud800"), 400, None, None),
    ("prompt missing", "completions", body(messages=...), 400, "prompt", None),
    ("prompt empty", "completions", body(messages=..., prompt=""), 400, "prompt", None),
    ("prompt two strings", "completions", body(messages=..., prompt=["a", "b"]), 400, "prompt", None),
    ("prompt id out of range", "completions", body(messages=..., prompt=[10**6]), 400, "prompt", None),
    ("prompt id negative", "completions", body(messages=..., prompt=[-1]), 400, "prompt", None),
    ("prompt one empty string", "completions", body(messages=..., prompt=[""]), 400, "prompt", None),
    ("max_tokens 0 without echo", "completions", body(messages=..., prompt="a", max_tokens=0), 400, "max_tokens", None),
    ("logprobs 6", "completions", body(messages=..., prompt="a", logprobs=6), 400, "logprobs", None),
    ("suffix", "completions", body(messages=..., prompt="a", suffix="b"), 400, "suffix", "unsupported_parameter"),
    ("best_of", "completions", body(messages=..., prompt="a", best_of=3), 400, "best_of", "unsupported_parameter"),
]


def check_error(r, status, param=..., code=None):
    assert r.status_code == status, r.text
    assert r.headers["content-type"].startswith("application/json")
    error = r.json()["error"]
    assert set(r.json()) == {"error"} and set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)
    if param is not ...:
        assert error["param"] == param
    if code is not None:
        assert error["code"] == code


@pytest.fixture(scope="module")
def key(stack):
    return stack.new_key("badinput", rpm=1000, tpm=1000000, concurrency=5)


@pytest.fixture(params=["http/1.1", "h2c"])
def client(request):
    h2 = request.param == "h2c"
    with httpx2.Client(http1=not h2, http2=h2, timeout=60 * SLOW) as c:
        yield c


@pytest.mark.parametrize("name,path,data,status,param,code", CASES, ids=[c[0] for c in CASES])
def test_refused(stack, key, client, name, path, data, status, param, code):
    r = client.post(f"{stack.base}/v1/{path}", content=data, headers={"authorization": f"Bearer {key}"})
    check_error(r, status, param, code)


def test_no_key_and_wrong_keys(stack, client):
    url = stack.base + "/v1/chat/completions"
    good = stack.demo_key
    for header in ({}, {"authorization": "Bearer"}, {"authorization": "Basic abc"},
                   {"authorization": "Bearer sk-other-123"}, {"authorization": f"Bearer {good[:-1]}"},
                   {"authorization": f"Bearer {good}x"}, {"authorization": f"Bearer {'a' * 4000}"}):
        check_error(client.post(url, content=body(), headers=header), 401, None, "invalid_api_key")


def test_a_body_of_20_mb_is_413_as_json(stack, key, client):
    data = body(messages=[{"role": "user", "content": "x" * 20_000_000}])
    r = client.post(stack.base + "/v1/chat/completions", content=data, headers={"authorization": f"Bearer {key}"})
    check_error(r, 413)

    def chunks():
        for i in range(0, len(data), 65536):
            yield data[i:i + 65536]
    r = client.post(stack.base + "/v1/chat/completions", content=chunks(), headers={"authorization": f"Bearer {key}"})
    check_error(r, 413)


def test_unknown_paths_and_methods(stack, key, client):
    check_error(client.get(stack.base + "/v1/nothing", headers={"authorization": f"Bearer {key}"}), 404)
    r = client.get(stack.base + "/v1/chat/completions", headers={"authorization": f"Bearer {key}"})
    check_error(r, 405)
    assert "POST" in r.headers["allow"]
    # A model whose name a NUL byte would cut to one that exists.
    check_error(client.get(f"{stack.base}/v1/models/{MODEL_ID}%00x", headers={"authorization": f"Bearer {key}"}), 404)
    r = client.post(stack.base + "/health")
    check_error(r, 405)
    assert r.headers["allow"] == "GET, HEAD"


def test_head_is_get_without_the_body(stack, client):
    for path in ("/health", "/livez", "/readyz", "/metrics"):
        head, get = client.head(stack.base + path), client.get(stack.base + path)
        assert head.status_code == get.status_code == 200, path
        assert head.content == b"" and head.headers["content-type"] == get.headers["content-type"]
    # the connection goes on with the next request
    assert client.get(stack.base + "/health").json()["status"] == "ok"


def test_a_key_without_the_scope_is_forbidden(stack, client):
    key = stack.new_key("badinput", scopes="usage")
    r = client.post(stack.base + "/v1/chat/completions", content=body(), headers={"authorization": f"Bearer {key}"})
    check_error(r, 403)


def test_broken_http_does_not_hurt(stack):
    for raw in (b"GARBAGE\r\n\r\n", b"POST /v1/models HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100, b"\x16\x03\x01" + b"\x00" * 50):
        with socket.create_connection(("127.0.0.1", stack.port), timeout=10) as s:
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                pass
    assert stack.is_ready()


def test_unknown_fields_pass_whatever_their_numbers(stack, key, client):
    data = body().replace(b'"max_tokens"', b'"unheard_of": [9223372036854775808, -1e400], "max_tokens"')
    assert client.post(f"{stack.base}/v1/chat/completions", content=data,
                       headers={"authorization": f"Bearer {stack.demo_key}"}).status_code == 200


def test_weights_that_are_not_finite_fail_each_request_and_nothing_else(own_stack):
    stack, path = own_stack, own_stack.dir.parent / MODEL.name
    subprocess.run([sys.executable, ROOT / "tools/damaged_gguf.py", MODEL, path, "output_norm.weight"], check=True)
    stack.model_file = path
    stack.start()
    engine, tenant = stack.pid_of("engine"), "damaged"
    key = stack.new_key(tenant)
    bodies = [GOOD, {**GOOD, "stream": True}, {**GOOD, "n": 4}, {**GOOD, "temperature": 1, "logprobs": True}]
    for b in bodies:
        check_error(stack.post("/v1/chat/completions", b, key), 500)
    check_error(stack.post("/v1/completions", {"model": MODEL_ID, "prompt": "a b", "max_tokens": 0, "echo": True,
                                               "logprobs": 1}, key), 500)
    rows = stack.wait_rows(5, "t.name = %s", tenant)
    assert [(r["outcome"], r["prompt_tokens"], r["output_tokens"], r["cost_nanos"]) for r in rows] == [("failed", 0, 0, 0)] * 5
    assert stack.pid_of("engine") == engine and stack.is_ready()
    wait_for("all counted", lambda: stack.metric("vllm:corrupted_requests_total") >= 5, 3 * SLOW)
    wait_for("no page in use", lambda: stack.metric("vllm:kv_cache_usage_perc") == 0, 3 * SLOW)


def test_nothing_of_it_was_reserved_or_billed(stack, key):
    """Runs last in this file: what the cases above left behind is nothing."""
    assert stack.rows("t.name = 'badinput'") == []
    r = stack.chat(key=key)
    assert r.status_code == 200
    assert int(r.headers["x-ratelimit-remaining-requests"]) == 999


def test_top_p_0_is_the_greedy_choice_and_disturbs_nobody(stack):
    """Allowed by the API, refused by the engine's frames: it must not end the connection that all share."""
    key = stack.new_key("top-p")
    greedy = stack.chat("Count to ten.", key=key, temperature=0).json()["choices"][0]["message"]["content"]
    body = {**GOOD, "max_tokens": 100, "ignore_eos": True, "stream": True}
    with httpx2.Client(timeout=60 * SLOW) as c, c.stream(
            "POST", stack.base + "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}) as other:
        parts = other.iter_text()
        next(parts)
        for top_p in (0, -0.0, 1e-50):
            r = stack.chat("Count to ten.", key=key, temperature=1.5, top_p=top_p)
            assert r.status_code == 200, r.text
            assert r.json()["choices"][0]["message"]["content"] == greedy
        assert "".join(parts).endswith("data: [DONE]\n\n")


def test_a_large_body_holds_up_nobody(stack):
    """Megabytes of JSON are parsed beside the loop: what others wait for turns meanwhile."""
    body = b"{" + b",".join(b'"k%d":1' % i for i in range(500_000)) + b"}"
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.demo_key}\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n")
    with socket.create_connection(("127.0.0.1", stack.port), timeout=60 * SLOW) as s, httpx2.Client() as c:
        s.sendall(head.encode() + body[:-1])  # the rest once the client's own work is done
        time.sleep(0.5)
        s.sendall(body[-1:])
        answered, waits = [], []
        reader = threading.Thread(target=lambda: answered.append((s.recv(65536), time.monotonic())))
        start = time.monotonic()
        reader.start()
        while reader.is_alive():
            t = time.monotonic()
            assert c.get(stack.base + "/livez", timeout=60 * SLOW).status_code == 200
            waits.append(time.monotonic() - t)
        answer, end = answered[0]
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert max(waits) < max((end - start) / 2, 0.1)
