"""A gateway that is killed in mid-load and replaced: the engine stays, and says how every request ended, to the token."""

import json
import os
import signal
import threading
import time

import httpx2
import pytest

from conftest import MODEL_ID, SANITIZED, SLOW, wait_for

STREAMS = 12 if SANITIZED else 64
TOKENS = 2000  # of each answer: none gets so far before the kill


def set_engine(stack, line):
    text = stack.config.read_text()
    stack.config.write_text(text.replace("engine:\n", f"engine:\n  {line}\n", 1))


def start(stack, tenant):
    """With an engine that bounds no step by its speed: what it measures of that while dozens of clients start
    would decide how long they wait for their first tokens."""
    stack.start()
    set_engine(stack, "step_ms: 0")
    old = stack.kill("engine")
    wait_for("its successor", lambda: stack.pid_of("engine") not in (None, old), 30 * SLOW)
    stack.wait_ready()
    return stack.new_key(tenant, rpm=100000, tpm=100000000)


class Streams:
    """Clients that each read one long answer until it breaks off."""

    def __init__(self, stack, key, name):
        self.stack, self.key = stack, key
        self.heard = {f"{name}-{i}": 0 for i in range(STREAMS)}  # events with a choice: each is one token at least
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in self.heard]
        for t in self.threads:
            t.start()

    def run(self, name):
        body = {"model": MODEL_ID, "prompt": f"The story {name}", "max_tokens": TOKENS,
                "ignore_eos": True, "temperature": 0.7, "stream": True}
        headers = {"authorization": f"Bearer {self.key}", "x-client-request-id": name}
        try:
            with httpx2.Client(timeout=120 * SLOW) as c, c.stream(
                    "POST", self.stack.base + "/v1/completions", json=body, headers=headers) as r:
                assert r.status_code == 200
                for line in r.iter_lines():
                    event = json.loads(line[6:]) if line.startswith("data: {") else {}
                    self.heard[name] += any(c["text"] for c in event.get("choices", ()))
                    if "error" in event:
                        self.errors.append(event["error"])
        except httpx2.TransportError:
            pass  # the gateway was killed: that is the test

    def wait_under_way(self):
        wait_for("every stream's first token", lambda: min(self.heard.values()) >= 1, 300 * SLOW)

    def join(self):
        for t in self.threads:
            t.join(60 * SLOW)
        assert not any(t.is_alive() for t in self.threads), "a stream hangs"


def kill_gateway(stack):
    old = stack.kill("gateway")
    wait_for("its successor", lambda: stack.pid_of("gateway") not in (None, old), 30 * SLOW, 0.005)


def first_answer_s(stack, key):
    """How long a request takes that is sent as soon as the gateway says that it is ready."""
    wait_for("ready", stack.is_ready, 60 * SLOW, 0.005)
    t = time.monotonic()
    assert stack.chat(key=key, max_tokens=1).status_code == 200
    return time.monotonic() - t


def tokens_generated(stack):
    """The engine's own counter, of its whole life, once nothing runs."""
    wait_for("an idle engine", lambda: stack.metric("vllm:num_requests_running") == 0
             and stack.metric("vllm:num_requests_waiting") == 0, 30 * SLOW)
    time.sleep(1.2)  # it says so once a second at least, and the page is as old as that
    return stack.metric("sluice_engine_output_tokens_total")


def interrupted_rows(stack, streams):
    """The one row of each stream."""
    want = {name for s in streams for name in s.heard}
    rows = stack.wait_rows(len(want), "e.outcome = 'interrupted'", seconds=30)
    assert len({r["id"] for r in rows}) == len(rows) == len(want)
    assert {r["client_request_id"] for r in rows} == want
    for s in streams:
        s.join()
        assert s.errors == []
    return {r["client_request_id"]: r for r in rows}


def check_exact(stack, streams):
    rows = interrupted_rows(stack, streams)
    for s in streams:
        for name, heard in s.heard.items():
            assert 1 <= heard <= rows[name]["output_tokens"] < TOKENS
            assert rows[name]["prompt_tokens"] > 0
    generated = tokens_generated(stack)
    wait_for("all rows", lambda: stack.metric("sluice_usage_unposted") == 0, 20 * SLOW)
    assert sum(r["output_tokens"] for r in stack.rows()) == generated


def test_a_killed_gateways_streams_are_billed_to_the_token(own_stack):
    stack, key = own_stack, start(own_stack, "adopt")
    engine = stack.pid_of("engine")
    streams = Streams(stack, key, "once")
    streams.wait_under_way()
    kill_gateway(stack)
    seconds = first_answer_s(stack, key)
    print(f"first answer of the new gateway after {seconds * 1000:.0f} ms")
    assert SANITIZED or seconds < 1
    check_exact(stack, [streams])
    assert stack.pid_of("engine") == engine


def test_a_gateway_killed_again_before_it_has_settled(own_stack):
    stack, key = own_stack, start(own_stack, "again")
    engine = stack.pid_of("engine")
    first = Streams(stack, key, "first")
    first.wait_under_way()
    kill_gateway(stack)
    kill_gateway(stack)
    wait_for("ready", stack.is_ready, 60 * SLOW)
    second = Streams(stack, key, "second")
    second.wait_under_way()
    kill_gateway(stack)
    wait_for("ready", stack.is_ready, 60 * SLOW)
    check_exact(stack, [first, second])
    assert stack.pid_of("engine") == engine


def test_a_gateway_and_its_engine_killed(own_stack):
    """Nobody knows the exact counts any more: the last progress records count, which are never too many."""
    stack, key = own_stack, start(own_stack, "both")
    streams = Streams(stack, key, "both")
    streams.wait_under_way()
    os.kill(stack.process.pid, signal.SIGSTOP)  # it would start either again at once
    try:
        stack.kill("gateway")
        stack.kill("engine")
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)
    stack.wait_ready()
    rows = interrupted_rows(stack, [streams])
    assert all(r["output_tokens"] < TOKENS for r in rows.values())
    assert stack.chat(key=key).status_code == 200


@pytest.mark.parametrize("wait_ms", [0, 10000])
def test_a_stopped_gateway_leaves_nothing_open(own_stack, wait_ms):
    """SIGTERM is no kill: what runs is drained, and what an earlier gateway left is settled."""
    stack, key = own_stack, start(own_stack, "stop")
    if wait_ms == 0:
        set_engine(stack, "adopt_ms: 0")
    streams = Streams(stack, key, "stop")
    streams.wait_under_way()
    kill_gateway(stack)
    wait_for("ready", stack.is_ready, 60 * SLOW)
    old = stack.kill("gateway", signal.SIGTERM)
    wait_for("its successor", lambda: stack.pid_of("gateway") not in (None, old), 60 * SLOW)
    wait_for("ready", stack.is_ready, 60 * SLOW)
    rows = interrupted_rows(stack, [streams])
    assert all(0 <= r["output_tokens"] < TOKENS for r in rows.values())
