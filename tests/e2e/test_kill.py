"""kill -9 of anything in mid-load: all come back, clients get clean errors, every admitted request is one row."""

import json
import threading
import time

import httpx2
import pytest

from conftest import MODEL_ID, SANITIZED, SLOW, sse_events, wait_for

CLIENTS = 12
TOKENS = 12 if SANITIZED else 48  # of each answer, at most


class Load:
    """Clients that stream one request after the other until told to stop. Each request has its own id."""

    def __init__(self, stack, key):
        self.stack, self.key = stack, key
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.started = {}   # client request id -> completion id, for answers that began (200)
        self.done = {}      # client request id -> (usage) of those that saw the end
        self.errors = []    # status codes and in-stream errors
        self.odd = []       # anything that is not a clean error
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(120 * SLOW)
        assert not any(t.is_alive() for t in self.threads), "a request hangs"

    def run(self, i):
        n = 0
        while not self.stopping.is_set():
            n += 1
            self.one(f"c{i}-{n}")

    def one(self, name):
        body = {"model": MODEL_ID, "messages": [{"role": "user", "content": f"Tell me a story, number {name}."}],
                "max_tokens": TOKENS, "temperature": 0.7, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with httpx2.Client(timeout=60 * SLOW) as c, c.stream(
                    "POST", self.stack.base + "/v1/chat/completions", json=body,
                    headers={"authorization": f"Bearer {self.key}", "x-client-request-id": name}) as r:
                if r.status_code != 200:
                    r.read()
                    self.note(self.errors, r.status_code)
                    if set(r.json()["error"]) != {"message", "type", "param", "code"}:
                        self.note(self.odd, r.text)
                    time.sleep(0.1)
                    return
                text = ""
                for part in r.iter_text():
                    text += part
                    if name not in self.started and "chatcmpl-" in text:
                        with self.lock:
                            self.started[name] = text[text.index("chatcmpl-"):][9:41]
            self.finish(name, sse_events(text))
        except httpx2.TransportError as e:  # the gateway itself was killed
            self.note(self.errors, type(e).__name__)
            time.sleep(0.1)

    def finish(self, name, events):
        if events and events[-1] == "[DONE]":
            with self.lock:
                self.done[name] = events[-2]["usage"]
        elif events and "error" in events[-1]:
            self.note(self.errors, events[-1]["error"]["code"] or events[-1]["error"]["type"])
        else:
            self.note(self.errors, "cut")

    def note(self, where, what):
        with self.lock:
            where.append(what)


@pytest.mark.parametrize("victim", ["engine", "gateway", "redis", "postgres"])
def test_kill_9_in_mid_load(own_stack, victim):
    stack = own_stack.start()
    key = stack.new_key("victim", rpm=100000, tpm=100000000, concurrency=100)
    load = Load(stack, key)
    try:
        wait_for("answers", lambda: len(load.done) >= CLIENTS, 60 * SLOW)
        old = stack.kill(victim)
        wait_for("its successor", lambda: stack.pid_of(victim) not in (None, old), 30 * SLOW)
        stack.wait_ready(30)
        before = len(load.done)
        wait_for("answers again", lambda: len(load.done) >= before + CLIENTS, 60 * SLOW)
    finally:
        load.stop()
    assert load.odd == []

    wait_for("every started request's row", lambda: set(load.started) <= {
        r["client_request_id"] for r in stack.rows("t.name = 'victim'")}, 20 * SLOW, 0.3)
    rows = stack.rows("t.name = 'victim'")
    names = [r["client_request_id"] for r in rows]
    assert len(names) == len(set(names)), "a request has two rows"
    by_name = {r["client_request_id"]: r for r in rows}
    for name, usage in load.done.items():
        row = by_name[name]
        assert row["outcome"] == "completed"
        assert (row["prompt_tokens"], row["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    for name, row in by_name.items():
        assert 0 <= row["output_tokens"] <= TOKENS
        assert row["outcome"] in {"engine": ("completed", "failed"), "gateway": ("completed", "interrupted", "cancelled")}.get(
            victim, ("completed",)), f"{name}: {row['outcome']}"
    # the report is the rows' sum
    report = [json.loads(line) for line in stack.cli(
        "usage", "--config", str(stack.config), "--tenant", "victim", "--format", "jsonl").stdout.splitlines()]
    assert sum(r["output_tokens"] for r in report) == sum(r["output_tokens"] for r in rows)


def test_without_an_engine_nothing_is_admitted(own_stack):
    """A 503, no reservation, no row: also what a gateway does that has not found its engine yet."""
    import os
    import signal
    stack = own_stack.start()
    key = stack.new_key("early", rpm=1)
    os.kill(stack.process.pid, signal.SIGSTOP)  # it would start another engine at once
    try:
        stack.kill("engine")
        wait_for("the loss seen", lambda: not stack.is_ready(), 20 * SLOW)
        r = stack.chat(key=key)
        assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)
    stack.wait_ready()
    assert stack.chat(key=key).status_code == 200
    assert [r["outcome"] for r in stack.wait_rows(1, "t.name = 'early'")] == ["completed"]


def test_a_frozen_redis_hangs_nobody(own_stack):
    import signal
    stack = own_stack.start()
    pid = stack.kill("redis", signal.SIGSTOP)
    try:
        t = time.monotonic()
        r = stack.chat()
        assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1
        assert time.monotonic() - t < 5 * SLOW
    finally:
        import os
        os.kill(pid, signal.SIGCONT)
    wait_for("service again", lambda: stack.chat().status_code == 200, 20 * SLOW, 0.3)


def test_a_frozen_engine_hangs_nobody(own_stack):
    """An engine that is there and says nothing counts as dead after half a minute, and serves again when it wakes: also
    where nobody watches it. (With its supervisor: test_supervise.py.)"""
    import os
    import signal
    stack = own_stack.start()
    key = stack.new_key("frozen")
    os.kill(stack.process.pid, signal.SIGSTOP)
    pid = stack.kill("engine", signal.SIGSTOP)
    try:
        r = stack.chat(key=key)
        assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1
        # A loop says so at its next tick.
        wait_for("the loss seen", lambda: not stack.is_ready(), 2 * SLOW)
    finally:
        os.kill(pid, signal.SIGCONT)
        os.kill(stack.process.pid, signal.SIGCONT)
    stack.wait_ready()
    assert stack.chat(key=key).status_code == 200
    assert stack.pid_of("engine") == pid, "the launcher slept too: it has nothing to blame the engine for"
    assert [r["outcome"] for r in stack.wait_rows(2, "t.name = 'frozen'")] == ["failed", "completed"]


def test_postgres_away_costs_nothing_but_the_wait(own_stack):
    """Cached principals serve; usage waits in the journal."""
    import os
    import signal
    stack = own_stack.start()
    key = stack.new_key("waits")
    assert stack.chat(key=key).status_code == 200
    pid = stack.kill("postgres", signal.SIGSTOP)
    try:
        answers = [stack.chat(key=key).status_code for _ in range(5)]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert answers == [200] * 5
    assert len(stack.wait_rows(6, "t.name = 'waits'", seconds=20)) == 6


def test_a_dead_gateways_slots_come_free(own_stack):
    """A key's concurrency is its own again as soon as the next gateway is there, not at the slots' deadline."""
    stack = own_stack.start()
    key = stack.new_key("slots", concurrency=2)
    threads = [threading.Thread(target=try_chat, args=(stack, key)) for _ in range(2)]
    for t in threads:
        t.start()
    wait_for("both slots taken", lambda: stack.chat(key=key, max_tokens=1).status_code == 429, 20 * SLOW)
    old = stack.kill("gateway")
    wait_for("its successor", lambda: stack.pid_of("gateway") not in (None, old), 30 * SLOW)
    stack.wait_ready()
    for t in threads:
        t.join()
    wait_for("a slot", lambda: stack.chat(key=key, max_tokens=1).status_code == 200, 5 * SLOW, 0.2)
    assert len(stack.wait_rows(2, "t.name = 'slots' AND outcome = 'interrupted'")) == 2


def try_chat(stack, key):
    try:  # the one that asks whether both are taken may hold one
        while stack.chat("Write a very long story.", key, max_tokens=1500, ignore_eos=True).status_code == 429:
            time.sleep(0.05)
    except httpx2.TransportError:
        pass  # the gateway was killed: that is the test
