"""A client that leaves stops its sequence within one step and pays for what was generated."""

import json
import socket
import time

import httpx2
import pytest

from conftest import MODEL_ID, SLOW, wait_for


def running(stack):
    return stack.metric("vllm:num_requests_running") + stack.metric("vllm:num_requests_waiting")


def long_body(stream):
    return {"model": MODEL_ID, "messages": [{"role": "user", "content": "Write a very long story about the sea."}],
            "max_tokens": 4000, "ignore_eos": True, "stream": stream, "temperature": 0}


def assert_cancelled_row(stack, tenant, at_least=0):
    row = stack.wait_rows(1, "t.name = %s", tenant)[0]
    assert row["outcome"] == "cancelled"
    assert at_least <= row["output_tokens"] < 4000
    wait_for("an idle engine", lambda: running(stack) == 0, 5 * SLOW)
    return row


@pytest.mark.parametrize("h2", [False, True], ids=["http/1.1", "h2c"])
def test_a_stream_that_is_closed(stack, h2):
    tenant = f"leave-{h2}"
    key = stack.new_key(tenant)
    seen = 0
    with httpx2.Client(http1=not h2, http2=h2, timeout=60 * SLOW) as c:
        with c.stream("POST", stack.base + "/v1/chat/completions", json=long_body(True),
                      headers={"authorization": f"Bearer {key}"}) as r:
            for line in r.iter_lines():
                seen += line.startswith("data: ")
                if seen == 10:
                    break
    row = assert_cancelled_row(stack, tenant, at_least=5)
    # billed: at least what was seen, and no more than a few steps beyond it
    assert row["output_tokens"] < 10 + 200
    assert row["prompt_tokens"] > 0


@pytest.mark.parametrize("h2", [False, True], ids=["http/1.1", "h2c"])
def test_an_unstreamed_answer_nobody_waits_for(stack, h2):
    tenant = f"leave-whole-{h2}"
    key = stack.new_key(tenant)
    with httpx2.Client(http1=not h2, http2=h2) as c:
        with pytest.raises(httpx2.TimeoutException):
            c.post(stack.base + "/v1/chat/completions", json=long_body(False),
                   headers={"authorization": f"Bearer {key}"}, timeout=1.0)
    assert_cancelled_row(stack, tenant)


def test_a_client_gone_while_queued_or_prefilling(stack):
    key = stack.new_key("leave-early")
    body = json.dumps({**long_body(True), "messages": [{"role": "user", "content": "sea " * 3000}]}).encode()
    for delay in (0.0, 0.002, 0.02, 0.2):
        with socket.create_connection(("127.0.0.1", stack.port)) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + key.encode() +
                      b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            time.sleep(delay)
    wait_for("an idle engine", lambda: running(stack) == 0, 10 * SLOW)
    time.sleep(1)
    rows = stack.rows("t.name = 'leave-early'")
    assert all(r["outcome"] == "cancelled" for r in rows)
    assert all(r["prompt_tokens"] == 0 or r["prompt_tokens"] > 3000 for r in rows)
    assert stack.chat(key=key).status_code == 200


def test_a_reader_that_stops_reading_is_cut_off_and_others_go_on(stack):
    key = stack.new_key("slow-reader")
    body = json.dumps(long_body(True)).encode()
    with socket.create_connection(("127.0.0.1", stack.port)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + key.encode() +
                  b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        t = time.monotonic()
        assert stack.chat().status_code == 200
        assert time.monotonic() - t < 10 * SLOW
    wait_for("an idle engine", lambda: running(stack) == 0, 10 * SLOW)
