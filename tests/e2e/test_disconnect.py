"""A client that leaves stops its sequence within one step and pays for what was generated."""

import concurrent.futures as futures
import json
import random
import socket
import time

import httpx2
import pytest

from conftest import MODEL_ID, SANITIZED, SLOW, stack_of_its_own, wait_for


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


@pytest.fixture(scope="module")
def single():
    """A stack whose engine computes one sequence at a time: the next one queues."""
    with stack_of_its_own("single") as s:
        s.start()
        s.configure("engine", "max_sequences: 1")
        s.restart("engine")
        wait_for("an engine at rest", lambda: s.chat(max_tokens=1).status_code == 200, 20 * SLOW)
        yield s


class Client:
    """One request on a connection of its own, of which nothing is read by itself."""

    def __init__(self, stack, key, body, receive_bytes=None):
        data = json.dumps(body).encode()
        self.sock = socket.socket()
        if receive_bytes:  # small windows and segments: the kernel holds little
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.sock.connect(("127.0.0.1", stack.port))
        self.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + key.encode() +
                          b"\r\ncontent-length: %d\r\n\r\n" % len(data) + data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


def assert_free(row):
    assert row["outcome"] == "cancelled"
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"], row["cost_nanos"]) == (0, 0, 0, 0)


def test_clients_gone_while_queued(single):
    waiting, tokens, n = "vllm:num_requests_waiting", "vllm:generation_tokens_total", 4
    before = single.metric(tokens)
    with Client(single, single.new_key("in-front"), long_body(True)):
        wait_for("one that runs", lambda: single.metric("vllm:num_requests_running") == 1, 20 * SLOW)
        key = single.new_key("leave-queue")
        clients = [Client(single, key, long_body(stream=bool(i % 2))) for i in range(n)]
        wait_for("all others queued", lambda: single.metric(waiting) == n, 20 * SLOW)
        for c in clients:
            c.sock.close()
        wait_for("an empty queue", lambda: single.metric(waiting) == 0, 5 * SLOW)
        assert single.metric("vllm:num_requests_running") == 1, "who was in front goes on"
        wait_for("its first token", lambda: single.metric(tokens) > before, 20 * SLOW)
        rows = single.wait_rows(n, "t.name = 'leave-queue'")
    assert len(rows) == n
    for row in rows:
        assert_free(row)
    assert_cancelled_row(single, "in-front", at_least=1)
    assert single.chat().status_code == 200


def test_a_client_gone_while_prefilling(single):
    body = {**long_body(True), "max_tokens": 1, "messages": [{"role": "user", "content": "sea " * 7000}]}
    with Client(single, single.new_key("leave-prefill"), body):
        wait_for("one that runs", lambda: single.metric("vllm:num_requests_running") == 1, 20 * SLOW, 0.01)
        assert single.metric("vllm:kv_cache_usage_perc") > 0
    wait_for("an idle engine", lambda: running(single) == 0, 5 * SLOW)
    rows = single.wait_rows(1, "t.name = 'leave-prefill'")
    assert len(rows) == 1
    assert_free(rows[0])
    assert single.metric("vllm:kv_cache_usage_perc") == 0
    assert single.chat().status_code == 200


def test_a_reader_that_stops_reading_is_cut_off_and_others_go_on(quick_stack):
    stack = quick_stack.start()
    body = {**long_body(True), "max_tokens": 2000, "n": 2, "logprobs": True, "top_logprobs": 20}
    with Client(stack, stack.new_key("slow-reader"), body, receive_bytes=4096) as c:
        t = time.monotonic()
        assert stack.chat().status_code == 200
        assert time.monotonic() - t < 10 * SLOW
        # all this while its connection is open
        rows = stack.wait_rows(1, "t.name = 'slow-reader'", seconds=60)
        assert rows[0]["outcome"] == "cancelled" and 0 < rows[0]["output_tokens"] < 2 * 2000
        wait_for("an idle engine", lambda: running(stack) == 0, 5 * SLOW)
        raw = b""
        c.sock.settimeout(10 * SLOW)
        try:
            while block := c.sock.recv(65536):
                raw += block
        except ConnectionResetError:
            pass
    assert raw.startswith(b"HTTP/1.1 200 ") and b"[DONE]" not in raw


def test_pages_are_back_after_hundreds_of_mixed_requests(quick_stack):
    """Whole, streamed, several choices, repeated prompts, echoes; a third is left at a random moment."""
    stack = quick_stack.start()
    rng, key = random.Random(4), stack.new_key("mixed", rpm=100000, tpm=100000000, concurrency=100)
    n = 60 if SANITIZED else 200
    text = "The harbour was full of boats that had come in before the storm. "

    def one(plan):
        fields, leaves = plan
        with httpx2.Client(timeout=60 * SLOW) as c:
            with c.stream("POST", stack.base + "/v1/completions", json={"model": MODEL_ID, **fields},
                          headers={"authorization": f"Bearer {key}"}) as r:
                assert r.status_code == 200
                lines = r.iter_lines()
                for _ in range(leaves):
                    if next(lines, None) is None:
                        return
                if leaves == 0:
                    for _ in lines:
                        pass

    def plan_of(i):
        prompt = text * rng.randint(0, 3) + (f"Number {i}." if rng.random() < 0.7 else "Again.")
        fields = {"prompt": prompt, "max_tokens": rng.randint(1, 24), "seed": i, "n": rng.choice([1, 1, 1, 3]),
                  "stream": rng.random() < 0.7, "echo": rng.random() < 0.2, "ignore_eos": True}
        if rng.random() < 0.2:
            fields["logprobs"] = rng.randint(0, 5)
        return fields, rng.randint(1, 12) if rng.random() < 0.4 and fields["stream"] else 0

    plans = [plan_of(i) for i in range(n)]
    with futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, plans))
    rows = stack.wait_rows(n, "t.name = 'mixed'", seconds=30)
    assert len(rows) == n and {r["outcome"] for r in rows} == {"completed", "cancelled"}
    assert any(r["cached_tokens"] > 0 for r in rows)
    wait_for("an idle engine", lambda: running(stack) == 0, 5 * SLOW)
    for gauge in ("sluice_engine_kv_pages_used", "vllm:kv_cache_usage_perc", "sluice_requests_in_flight",
                  "sluice_answer_bytes"):
        wait_for(f"{gauge} at 0", lambda: stack.metric(gauge) == 0, 2 * SLOW)
