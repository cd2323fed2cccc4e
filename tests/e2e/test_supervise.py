"""The supervisor: a watchdog on the engine's progress, an end to crash loops, `sluice status`, and serve --with-engine
against databases of one's own."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx2
import pytest

from conftest import BIN, MODEL, MODEL_ID, SLOW, Stack, free_port, scratch, sse_events, wait_for

STALL_MS = 8000  # far above what an engine needs for its first steps on a machine that others use
STALL_MAX_S = 2 * STALL_MS / 1000  # until it is seen and dealt with: far below the 30 s that hold where nothing is set


class House(Stack):
    """`sluice serve --with-engine` beside a `sluice up` that lends its databases. Its settings are its own."""

    def __init__(self, directory, databases, **engine):
        super().__init__(directory)
        self.databases, self.engine = databases, engine

    @property
    def config(self):
        return self.dir / "house.yaml"

    @property
    def demo_key(self):
        return self.databases.demo_key

    def write_config(self, model=MODEL):
        text = self.databases.config.read_text()
        text = re.sub(r"(?m)^  path: .*$", f'  path: "{model}"', text, count=1)
        text = re.sub(r'(?m)^engine:\n  socket: .*$', "engine:\n" + "".join(
            f"  {k}: {v}\n" for k, v in {"socket": self.dir / "engine.sock", **self.engine}.items()).rstrip(), text)
        text = re.sub(r"(?m)^  port: .*$", f"  port: {self.port}", text)
        text = re.sub(r"(?m)^  tls_port: .*$", f"  tls_port: {self.tls_port}", text)
        text = re.sub(r"(?m)^  admin_port: .*$", f"  admin_port: {self.admin_port}", text)
        for name in ("tls.crt", "tls.key", "pepper"):
            text = text.replace(f" {name}\n", f" {self.databases.dir / name}\n")
        self.config.write_text(text)
        self.config.chmod(0o600)

    def command(self):
        self.write_config()
        return [str(BIN), "serve", "--with-engine", "--config", str(self.config)]

    def start(self, wait=True):
        self.dir.mkdir(parents=True, exist_ok=True)
        return super().start(wait)

    def status(self):
        done = self.cli("status", "--config", str(self.config), "--json", check=False)
        return done.returncode, json.loads(done.stdout)

    def readyz(self):
        return httpx2.get(self.base + "/readyz", timeout=5)


@pytest.fixture
def house(stack):
    base = scratch("house")
    h = House(base / "var", stack, stall_ms=STALL_MS)
    try:
        yield h
    finally:
        h.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


class Stream(threading.Thread):
    """One streamed answer that would go on for long: when and how it ended."""

    def __init__(self, stack, key):
        super().__init__()
        self.stack, self.key, self.text, self.code = stack, key, "", None
        self.start()

    def run(self):
        body = {"model": MODEL_ID, "messages": [{"role": "user", "content": "Tell me a very long story."}],
                "max_tokens": 2000, "ignore_eos": True, "stream": True}
        with httpx2.Client(timeout=60 * SLOW) as c, c.stream("POST", self.stack.base + "/v1/chat/completions", json=body,
                                                             headers={"authorization": f"Bearer {self.key}"}) as r:
            self.code = r.status_code
            for part in r.iter_text():
                self.text += part
        self.ended = time.monotonic()

    def n_texts(self):
        return sum(bool(e["choices"][0]["delta"].get("content")) for e in self.events() if "choices" in e)

    def events(self):
        return [e for e in sse_events(self.text) if e != "[DONE]"]


def streams(house, key, n=4):
    out = [Stream(house, key) for _ in range(n)]
    wait_for("all streams have begun", lambda: all(s.n_texts() > 2 for s in out), 30 * SLOW)
    return out


def assert_ended_and_billed(house, tenant, out):
    """Each with an error event; each one row, of the tokens that came."""
    for s in out:
        s.join(60 * SLOW)
        assert s.code == 200 and "error" in s.events()[-1], s.text[-300:]
    rows = house.databases.wait_rows(len(out), f"t.name = '{tenant}'")
    assert len(rows) == len(out)
    assert {r["outcome"] for r in rows} == {"failed"}
    # A token may give no text of its own yet, none gives more than one.
    for row, texts in zip(sorted(r["output_tokens"] for r in rows), sorted(s.n_texts() for s in out)):
        assert texts <= row <= texts + 8


def test_a_frozen_engine_is_killed_and_started_again(house):
    house.start()
    key = house.new_key("stall")
    out = streams(house, key)
    frozen = time.monotonic()
    old = house.kill("engine", signal.SIGSTOP)
    wait_for("its successor", lambda: house.pid_of("engine") not in (None, old), STALL_MAX_S)
    assert_ended_and_billed(house, "stall", out)
    assert max(s.ended for s in out) - frozen < STALL_MAX_S
    house.wait_ready(30)
    silent_s = int(re.search(r"said nothing for (\d+) s: killed", house.text()).group(1))
    assert STALL_MS / 1000 <= silent_s < STALL_MAX_S
    code, status = house.status()
    assert code == 0 and status["engines"][0]["deaths"] == 1 and "said nothing" in status["engines"][0]["reason"]
    assert house.chat(key=key).status_code == 200


def test_a_killed_engine_ends_streams_within_two_seconds(house):
    house.start()
    key = house.new_key("sudden")
    out = streams(house, key)
    killed = time.monotonic()
    house.kill("engine")
    assert_ended_and_billed(house, "sudden", out)
    assert max(s.ended for s in out) - killed < 2
    house.wait_ready(30)
    assert house.chat(key=key).status_code == 200


def test_a_crash_loop_stops_and_says_why(house):
    """The model's file is cut short under the house; what the next engine says is the reason."""
    copy = house.dir / "model.gguf"
    house.dir.mkdir(parents=True)
    shutil.copy(MODEL, copy)
    house.write_config = lambda: House.write_config(house, copy)
    house.start()
    os.truncate(copy, 1 << 20)
    try:  # unless it has met the missing pages by itself
        os.kill(house.pid_of("engine") or 0x7fffffff, signal.SIGKILL)
    except ProcessLookupError:
        pass
    wait_for("the end of the loop", lambda: "stopped after 5 crashes" in house.readyz().text, 30 * SLOW)
    answer = house.readyz()
    assert answer.status_code == 503 and answer.json()["parts"]["engine"] is False
    assert re.match(r"engine: stopped after 5 crashes: .*; last log: .*model", answer.json()["reason"])
    code, status = house.status()
    assert code == 1 and status["engines"][0]["state"] == "down"
    assert status["engines"][0]["deaths"] in (5, 6)  # the first one counts unless it had been healthy for 30 s
    assert "stopped after 5 crashes" in status["engines"][0]["reason"]
    log = status["engines"][0]["log"]
    assert log and "runs past the end of the file" in log[-1], "the last lines of its log"
    text = house.cli("status", "--config", str(house.config), check=False).stdout
    assert f"to try again: sluice model load --config FILE {MODEL_ID}, or SIGHUP to the supervisor" in text
    assert house.pid_of("engine") is None
    r = house.chat()
    assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1
    shutil.copy(MODEL, copy)
    house.process.send_signal(signal.SIGHUP)
    house.wait_ready(30)
    answer = house.chat()
    assert answer.status_code == 200, answer.text


def test_a_dead_gateway_leaves_its_engine_alone(house):
    house.start()
    engine = house.pid_of("engine")
    old = house.kill("gateway")
    wait_for("its successor", lambda: house.pid_of("gateway") not in (None, old), 20 * SLOW)
    house.wait_ready(30)
    assert house.pid_of("engine") == engine
    answer = house.chat()
    assert answer.status_code == 200, answer.text


def test_kill_9_of_the_supervisor_leaves_nothing_and_the_next_one_works(house):
    house.start()
    pids = [house.pid_of("engine"), house.pid_of("gateway")]
    house.process.kill()
    house.process.wait()
    assert house.status()[0] == 1
    # While they still drain: the next one waits for them.
    house.start()
    assert house.pid_of("engine") not in pids and house.pid_of("gateway") not in pids
    # It measures its first steps while nobody asks for anything: a busy machine takes a while.
    wait_for("all that status asks", lambda: house.status()[0] == 0, 20 * SLOW)
    assert house.status()[1]["engines"][0]["deaths"] == 0
    answer = house.chat()
    assert answer.status_code == 200, answer.text


def test_status_for_people(house):
    def ask():
        return house.cli("status", "--config", str(house.config), check=False)
    house.dir.mkdir(parents=True)
    house.write_config()
    done = ask()
    assert done.returncode == 1
    assert "nothing listens at" in done.stdout and "no answer on 127.0.0.1" in done.stdout
    house.start()
    done = ask()
    assert done.returncode == 0
    assert re.search(r"engine   ready: pid \d+, cpu ", done.stdout) and "gateway  ready" in done.stdout
    assert house.cli("status", "--config", "/nowhere.yaml", check=False).returncode == 1
    assert house.cli("status", check=False).returncode == 2


def test_a_second_house_is_refused(house):
    house.start()
    done = subprocess.run(house.command(), capture_output=True, text=True, timeout=30 * SLOW)
    assert done.returncode == 1 and "in use by another sluice" in done.stderr
    answer = house.chat()
    assert answer.status_code == 200, answer.text


def test_a_caller_that_does_not_greet_is_let_go(house):
    house.start()
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(house.dir / "engine.sock"))
        s.settimeout(10 * SLOW)
        began = time.monotonic()
        assert s.recv(1) == b""
        assert 4 < time.monotonic() - began
