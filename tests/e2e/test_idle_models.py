"""Models that nobody asks for are unloaded, and loaded again for the next request, which waits."""

import json
import os
import random
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from conftest import MODEL_ID, SLOW, scratch, sse_events, wait_for
from test_fleet import LIMITS, SHALLOW, Fleet, models, shallow  # noqa: F401 (a fixture)

PING_MS = 300
WAIT_S = 60


class Idle(Fleet):
    """Its second model is unloaded when nobody asks for it."""

    def __init__(self, *args, idle_s=1, load_wait_s=WAIT_S * SLOW, all_idle=False, max_sequences=64):
        super().__init__(*args)
        self.load_wait_s = load_wait_s
        self.models[0]["max_sequences"] = max_sequences
        for m in self.models:
            if all_idle or m["id"] == SHALLOW:
                m["idle_unload_s"] = idle_s

    def write_config(self):
        super().write_config()
        text = self.config.read_text().replace("engine:\n", f"engine:\n  load_wait_s: {self.load_wait_s}\n")
        self.config.write_text(text.replace("server:\n", f"server:\n  ping_ms: {PING_MS}\n  loops: 2\n"))

    def find_engine(self, model):
        """The supervisor's child, also while it loads."""
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"engine" in words and model.encode() in words:
                return int(pid)
        return None

    def wait_idle(self, model=SHALLOW):
        wait_for(f"{model} idle", lambda: self.states()[model] == "idle" and self.readyz()[1].get("asleep"), 30 * SLOW)
        assert self.find_engine(model) is None, "its process has gone, and its memory with it"

    def readyz(self):
        r = httpx2.get(self.base + "/readyz", timeout=10)
        return r.status_code, r.json()

    def starts(self, model=SHALLOW):
        return len(re.findall(rf"engine {re.escape(model)} started again", self.text()))

    def stop_the_load(self, model=SHALLOW):
        """The new engine process, stopped before it is ready."""
        pid = wait_for("a new engine", lambda: self.find_engine(model), 20 * SLOW, step=0.002)
        os.kill(pid, signal.SIGSTOP)
        assert self.states()[model] == "loading"
        return pid


@pytest.fixture
def make(stack, shallow):  # noqa: F811
    made = []

    def start(**how):
        base = scratch("idle")
        f = Idle(stack, base / "var", models(shallow), **how)
        made.append((f, base))
        return f.start()

    yield start
    for f, base in made:
        pid = f.find_engine(SHALLOW)
        if pid is not None:
            os.kill(pid, signal.SIGCONT)
        f.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


class Streamed(threading.Thread):
    """A streamed request; leave() closes its connection."""

    def __init__(self, f, key, **fields):
        super().__init__(daemon=True)
        self.f, self.key, self.fields, self.raw, self.leaves = f, key, fields, "", False
        self.start()

    def run(self):
        body = {"model": "quick", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0,
                "stream": True, **self.fields}
        with httpx2.Client(timeout=120 * SLOW) as c, c.stream("POST", self.f.base + "/v1/chat/completions", json=body,
                                                              headers={"authorization": f"Bearer {self.key}"}) as r:
            self.status = r.status_code
            for part in r.iter_text():
                self.raw += part
                if self.leaves:
                    return

    def n_pings(self):
        return self.raw.count(": ping\n\n")

    def leave(self):
        self.leaves = True
        self.join(20 * SLOW)
        assert not self.is_alive()

    def text(self):
        self.join(120 * SLOW)
        assert not self.is_alive() and self.status == 200 and self.raw.endswith("data: [DONE]\n\n"), self.raw[-300:]
        return "".join(e["choices"][0]["delta"].get("content") or "" for e in sse_events(self.raw)[:-1])


def words(r):
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["message"]["content"]


def test_idle_models_leave_and_requests_bring_them_back_once(make):
    f = make(all_idle=True)
    key = f.new_key("idlers", **LIMITS)
    wanted = words(f.chat(key=key, model="quick"))
    fingerprint = f.chat(key=key, model="quick").json()["system_fingerprint"]
    for model in (MODEL_ID, SHALLOW):
        f.wait_idle(model)
    code, body = f.readyz()
    assert code == 200 and body["asleep"] == [MODEL_ID, SHALLOW] and all(body["models"].values()) and "reason" not in body
    code, engines = f.status()
    assert code == 0 and all((e["supervisor"], e["deaths"]) == ("idle", 0) for e in engines.values())
    assert "idle: " in f.cli("status", "--config", str(f.config)).stdout
    assert f.metric("sluice_engine_asleep") == 2 and f.metric("sluice_engine_up") == 0
    before = f.starts()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: f.chat(key=key, model="quick"), range(20)))
    assert {words(r) for r in answers} == {wanted}
    assert {r.json()["system_fingerprint"] for r in answers} == {fingerprint}
    assert f.starts() == before + 1, "woken once"
    assert f.states()[MODEL_ID] == "idle", "the other one sleeps on"
    assert words(f.chat(key=key, model="chat"))
    rows = f.wait_rows(23, "t.name = 'idlers'")
    assert all(r["outcome"] == "completed" and r["output_tokens"] > 0 for r in rows)


def test_a_stream_gets_comments_while_its_model_loads(make):
    f = make()
    key = f.new_key("waiters", **LIMITS)
    wanted = words(f.chat(key=key, model="quick"))
    f.wait_idle()
    stream = Streamed(f, key)
    with ThreadPoolExecutor(1) as pool:
        pid = f.stop_the_load()
        whole = pool.submit(f.chat, key=key, model="quick")
        leaver = Streamed(f, key)
        wait_for("comments", lambda: stream.n_pings() >= 4 and leaver.n_pings() >= 2, 20 * SLOW)
        assert f.readyz()[0] == 200 and words(f.chat(key=key, model="chat"))
        leaver.leave()
        gone = f.wait_rows(1, "t.name = 'waiters' AND e.outcome = 'cancelled'")[0]  # before the engine is there
        assert (gone["prompt_tokens"], gone["output_tokens"], gone["cost_nanos"]) == (0, 0, 0)
        assert "data: " not in stream.raw and not whole.done()
        os.kill(pid, signal.SIGCONT)
        assert stream.text() == wanted and words(whole.result()) == wanted
    assert f.find_engine(SHALLOW) == pid


def test_a_stream_that_waits_in_the_queue_gets_comments_too(make):
    f = make(max_sequences=1)
    key = f.new_key("queue", **LIMITS)
    first = Streamed(f, key, model="chat", max_tokens=300, ignore_eos=True)
    wait_for("a stream", lambda: '"content"' in first.raw, 30 * SLOW)
    second = Streamed(f, key, model="chat")
    wait_for("comments", lambda: second.n_pings() >= 2, 20 * SLOW, step=0.01)
    assert "data: " not in second.raw and first.is_alive()
    assert first.text() and second.text()


def refused_at_once(f, key):
    began = time.monotonic()
    assert f.chat(key=key, model="quick").status_code == 503
    return time.monotonic() - began < 1.5 * SLOW


def test_what_is_not_loaded_in_time_is_a_503_that_costs_nothing(make):
    f = make(load_wait_s=2)
    key = f.new_key("late", **LIMITS)
    f.wait_idle()
    stream = Streamed(f, key)
    pid = f.stop_the_load()
    began = time.monotonic()
    r = f.chat(key=key, model="quick")
    assert 1.0 < time.monotonic() - began < 6 * SLOW
    assert r.status_code == 503 and r.json()["error"]["code"] == "model_loading" and int(r.headers["retry-after"]) >= 1
    stream.join(20 * SLOW)
    last = sse_events(stream.raw)[-1]
    assert stream.status == 200 and stream.n_pings() >= 2 and last["error"]["code"] == "model_loading"
    assert any(refused_at_once(f, key) for _ in range(20)), "the loop that let one wait in vain lets no other one wait"
    rows = f.wait_rows(2, "t.name = 'late'")
    assert all((r["outcome"], r["prompt_tokens"], r["output_tokens"], r["cost_nanos"]) == ("failed", 0, 0, 0) for r in rows)
    os.kill(pid, signal.SIGCONT)
    wait_for("the model", lambda: f.chat(key=key, model="quick").status_code == 200, 30 * SLOW)


def test_a_load_that_fails_ends_its_waiters_at_once(make):
    f = make()
    key = f.new_key("unlucky", **LIMITS)
    f.wait_idle()
    path = Path(f.models[1]["path"])
    os.rename(path, path.with_suffix(".away"))
    try:
        began = time.monotonic()
        r = f.chat(key=key, model="quick")
        assert r.status_code == 503 and r.json()["error"]["code"] == "service_unavailable"
        assert time.monotonic() - began < 20 * SLOW
        wait_for("unready", lambda: not f.readyz()[1]["models"][SHALLOW], 10 * SLOW)
    finally:
        os.rename(path.with_suffix(".away"), path)
    f.model("load", SHALLOW)
    f.wait_model(SHALLOW)
    assert words(f.chat(key=key, model="quick"))


def test_what_was_unloaded_by_command_is_not_woken(make):
    f = make()
    key = f.new_key("patient", **LIMITS)
    f.wait_idle()
    assert f.model("unload", SHALLOW).stdout == f"{SHALLOW} is unloaded\n"
    wait_for("seen", lambda: not f.readyz()[1]["models"][SHALLOW], 10 * SLOW)
    before = f.starts()
    r = f.chat(key=key, model="quick")
    assert r.status_code == 503 and r.json()["error"]["code"] == "service_unavailable"
    assert f.states()[SHALLOW] == "unloaded" and f.starts() == before
    assert f.model("load", SHALLOW).stdout == f"{SHALLOW} is ready\n"
    f.wait_model(SHALLOW)
    assert words(f.chat(key=key, model="quick"))
    f.wait_idle()


def test_requests_around_the_idle_moment_are_all_answered(make):
    """It is asked to leave between 1 and 2 s after its last request."""
    f = make()
    key = f.new_key("hammer", **LIMITS)
    wanted = words(f.chat(key=key, model="quick", max_tokens=4))
    chance = random.Random(7)
    failed = []

    def ask():
        r = f.chat(key=key, model="quick", max_tokens=4)
        if r.status_code != 200 or words(r) != wanted:
            failed.append((r.status_code, r.text))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(int(os.environ.get("SLUICE_IDLE_ROUNDS", "30"))):
            time.sleep(chance.uniform(0.9, 2.2))
            for job in [pool.submit(ask) for _ in range(chance.randint(1, 4))]:
                job.result()
    assert not failed, json.dumps(failed)
    assert f.starts() >= 3, "it did leave now and then"
    assert f.status()[1][SHALLOW]["deaths"] == 0
