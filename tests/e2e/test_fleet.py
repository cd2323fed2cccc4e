"""`sluice serve --with-engine` and `sluice up` with several models: an engine each, whose deaths are its own, and
`sluice model`, which loads and unloads them."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from conftest import BIN, MODEL, MODEL_ID, ROOT, SLOW, Several, Stack, scratch, sse_events, wait_for

SHALLOW = "test/shallow"
STALL_MS = 8000
CYCLES = int(os.environ.get("SLUICE_LOAD_CYCLES", "20"))
LIMITS = {"rpm": 100000, "tpm": 100000000, "concurrency": 100}


class Fleet(Several):
    """A supervisor with an engine per model, on another stack's databases."""

    def start_engine(self, model):
        """The supervisor's matter."""

    def write_config(self):
        super().write_config()
        text = self.config.read_text().replace("engine:\n", f"engine:\n  stall_ms: {STALL_MS}\n")
        # a drain is as long as its streams are, also on a machine that others use
        self.config.write_text(text.replace("server:\n", "server:\n  drain_ms: 60000\n"))

    def spawn(self, *args):
        return super().spawn(*args, "--with-engine")

    def model(self, *args, check=True):
        return self.cli("model", args[0], "--config", str(self.config), *args[1:], check=check)

    def states(self):
        """Of each model, as `sluice model list` prints them."""
        lines = re.findall(r"(?m)^(\w+) +(?:pid \d+|-) +(\S+?)(?:: .*)?$", self.model("list").stdout)
        return {model: state for state, model in lines}

    def status(self):
        done = self.cli("status", "--config", str(self.config), "--json", check=False)
        status = json.loads(done.stdout)
        return done.returncode, {e["model"]: e for e in status["engines"]}

    def engine_pid(self, model):
        return self.status()[1][model].get("pid")

    def control(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10 * SLOW)
        s.connect(str(self.dir / "engine.sock.control"))
        return s


@pytest.fixture(scope="module")
def shallow():
    base = scratch("shallow")
    subprocess.run([sys.executable, str(ROOT / "tools/shallow_gguf.py"), str(MODEL), str(base / "shallow.gguf"), "1"], check=True)
    yield base / "shallow.gguf"
    shutil.rmtree(base, ignore_errors=True)


def models(shallow):
    return [{"path": str(MODEL), "id": MODEL_ID, "aliases": ["chat"], "threads": 1, "kv_mb": 256, "required": "on"},
            {"path": str(shallow), "id": SHALLOW, "aliases": ["quick"], "threads": 1, "kv_mb": 256}]


@pytest.fixture
def fleet(stack, shallow):
    base = scratch("fleet")
    f = Fleet(stack, base / "var", models(shallow))
    try:
        yield f.start()
    finally:
        f.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


class Story(threading.Thread):
    """One streamed answer: its text, and whether it ended with an error."""

    def __init__(self, fleet, key, model, n, seed=1):
        super().__init__(daemon=True)
        self.args, self.raw = (fleet, key, model, n, seed), ""
        self.start()

    def run(self):
        fleet, key, model, n, seed = self.args
        body = {"model": model, "messages": [{"role": "user", "content": f"Tell me story {seed}."}], "max_tokens": n,
                "temperature": 0.8, "seed": seed, "ignore_eos": True, "stream": True}
        with httpx2.Client(timeout=120 * SLOW) as c, c.stream("POST", fleet.base + "/v1/chat/completions", json=body,
                                                              headers={"authorization": f"Bearer {key}"}) as r:
            for part in r.iter_text():
                self.raw += part
        self.ended = time.monotonic()

    def has_begun(self):
        return '"content"' in self.raw

    def result(self):
        """Its text, and whether it ended with an error."""
        self.join(120 * SLOW)
        assert not self.is_alive()
        events = [e for e in sse_events(self.raw) if e != "[DONE]"]
        return ("".join(e["choices"][0]["delta"].get("content") or "" for e in events if e.get("choices")), "error" in events[-1])


def test_both_are_served_and_status_lists_them(fleet):
    for name, model in (("chat", MODEL_ID), ("quick", SHALLOW)):
        r = fleet.chat(model=name, max_tokens=4)
        assert r.status_code == 200 and r.json()["model"] == model
    code, engines = fleet.status()
    assert code == 0 and list(engines) == [MODEL_ID, SHALLOW]
    for model, e in engines.items():
        assert (e["state"], e["supervisor"], e["deaths"], e["required"]) == ("ready", "running", 0, model == MODEL_ID)
    text = fleet.cli("status", "--config", str(fleet.config)).stdout
    assert re.search(rf"model    {MODEL_ID}, required\nengine   ready: (.|\n)*model    {SHALLOW}\nengine   ready: ", text)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_what_happens_to_one_engine_leaves_the_others_streams_alone(fleet, sig):
    key, n = fleet.new_key(f"signal{int(sig)}", **LIMITS), 60
    wanted = Story(fleet, key, MODEL_ID, n).result()
    others = [Story(fleet, key, MODEL_ID, n), Story(fleet, key, "chat", n)]
    doomed = Story(fleet, key, "quick", 6000)
    wait_for("all streams", lambda: doomed.has_begun() and all(o.has_begun() for o in others), 30 * SLOW)
    old, neighbour = fleet.engine_pid(SHALLOW), fleet.engine_pid(MODEL_ID)
    assert doomed.is_alive()
    began = time.monotonic()
    os.kill(old, sig)
    assert [o.result() for o in others] == [wanted, wanted] and not wanted[1]
    assert doomed.result()[1]
    assert doomed.ended - began < (2 if sig == signal.SIGKILL else 2 * STALL_MS / 1000) * SLOW
    wait_for("its successor", lambda: fleet.engine_pid(SHALLOW) not in (None, old), 30 * SLOW)
    assert fleet.engine_pid(MODEL_ID) == neighbour
    fleet.wait_model(SHALLOW)
    assert fleet.chat(key=key, model="quick").status_code == 200
    assert fleet.status()[1][SHALLOW]["deaths"] == 1 and fleet.status()[1][MODEL_ID]["deaths"] == 0


def test_a_crash_loop_of_one_leaves_the_other_alone(stack, shallow):
    base = scratch("loop")
    broken = base / "broken.gguf"
    shutil.copy(shallow, broken)
    f = Fleet(stack, base / "var", models(broken))
    try:
        f.start()
        neighbour = f.engine_pid(MODEL_ID)
        pid = f.engine_pid(SHALLOW)
        os.rename(broken, base / "away.gguf")
        os.kill(pid, signal.SIGKILL)
        wait_for("the end of the loop", lambda: f.states()[SHALLOW] == "stopped", 30 * SLOW)
        assert f.is_ready() and f.chat(model="chat").status_code == 200 and f.engine_pid(MODEL_ID) == neighbour
        assert f.chat(model="quick").status_code == 503
        assert f.parts()["reason"].startswith(f"engine {SHALLOW}: stopped after 5 crashes: ")
        code, engines = f.status()
        assert code == 0 and "stopped after 5 crashes" in engines[SHALLOW]["reason"]
        done = f.model("load", SHALLOW, check=False)
        assert done.returncode == 1 and f"{SHALLOW} is waiting: " in done.stderr and "broken.gguf" in done.stderr
        os.rename(base / "away.gguf", broken)
        assert f.model("load", SHALLOW).stdout == f"{SHALLOW} is ready\n"
        f.wait_model(SHALLOW)
        assert f.chat(model="quick").status_code == 200
    finally:
        f.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


def test_unload_drains_and_load_brings_it_back(fleet):
    key = fleet.new_key("drained", **LIMITS)
    story = Story(fleet, key, "quick", 1500)
    wait_for("a stream", story.has_begun, 30 * SLOW)
    with ThreadPoolExecutor(1) as pool:
        unload = pool.submit(fleet.model, "unload", "quick")
        wait_for("the drain", lambda: fleet.states()[SHALLOW] == "unloading", 10 * SLOW, step=0.01)
        r = fleet.chat(key=key, model="quick")
        assert story.is_alive() and r.status_code == 503 and int(r.headers["retry-after"]) >= 1
        assert unload.result().stdout == f"{SHALLOW} is unloaded\n"
    text, failed = story.result()
    assert text and not failed, "what runs is ended first"
    assert fleet.states() == {MODEL_ID: "ready", SHALLOW: "unloaded"}
    r = fleet.chat(key=key, model="quick")
    assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1
    assert fleet.chat(key=key, model="chat").status_code == 200
    code, engines = fleet.status()
    assert code == 0 and engines[SHALLOW]["supervisor"] == "unloaded" and engines[SHALLOW]["state"] == "down"
    assert "not loaded" in engines[SHALLOW]["reason"] and engines[SHALLOW]["deaths"] == 0
    fleet.process.send_signal(signal.SIGHUP)  # tries what is down, not what is unloaded
    assert fleet.model("unload", SHALLOW).returncode == 0, "again: nothing"
    assert fleet.states()[SHALLOW] == "unloaded"
    assert fleet.model("load", SHALLOW).stdout == f"{SHALLOW} is ready\n"
    fleet.wait_model(SHALLOW)
    assert fleet.chat(key=key, model="quick").status_code == 200
    rows = fleet.wait_rows(3, "t.name = 'drained'")
    assert [r["output_tokens"] for r in rows if r["outcome"] == "completed" and r["model"] == SHALLOW][0] == 1500
    assert all(r["output_tokens"] == 0 for r in rows if r["outcome"] != "completed")


def test_a_required_model_that_is_unloaded_makes_the_gateway_unready(fleet):
    fleet.model("unload", MODEL_ID)
    wait_for("unready", lambda: not fleet.is_ready(), 10 * SLOW)
    assert fleet.status()[0] == 1
    assert fleet.chat(model="quick").status_code == 200
    fleet.model("load", MODEL_ID)
    fleet.wait_ready()
    assert fleet.status()[0] == 0


def test_who_asks_wrongly_is_told_so(fleet, tmp_path):
    done = fleet.model("unload", "nothing", check=False)
    assert done.returncode == 1 and f"has no model nothing, but {MODEL_ID}, {SHALLOW}" in done.stderr
    for args in (("list", "x"), ("load",), ("unload", "a", "b"), ("frob",)):
        assert fleet.model(*args, check=False).returncode == 2
    other = tmp_path / "other.yaml"
    other.write_text(fleet.config.read_text().replace(f"{fleet.dir}/engine.sock", f"{tmp_path}/engine.sock"))
    done = fleet.cli("model", "list", "--config", str(other), check=False)
    assert done.returncode == 1 and "no supervisor listens at" in done.stderr
    other.write_text(fleet.config.read_text())  # of the same engines, but nothing would be read from it
    done = fleet.cli("model", "swap", "--config", str(other), SHALLOW, check=False)
    assert done.returncode == 1 and f"was started with {fleet.config}" in done.stderr


def test_the_control_socket_bears_hostile_callers(fleet):
    """Each is answered or let go; the supervisor's turn and its engines don't wait for any."""
    path = fleet.dir / "engine.sock.control"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [b"\n", b"{}\n", b"\xff\xfe\n", b'{"op":"list","op":"list"}\n', b'{"op":"unload","model":"\\u0000"}\n', b"[" * 600,
             b'{"op":"load","model":"' + b"a" * 96 + b'"}\n', b'{"op":"list"}', b'{"op":"unload","model":"quick"}\n']
    for line in lines:
        with fleet.control() as s:
            s.sendall(line)
            s.shutdown(socket.SHUT_WR)
            try:
                answer = s.recv(1 << 16)
            except ConnectionResetError:
                continue  # hung up while bytes were unread
            assert answer == b"" or json.loads(answer)["ok"] is False, line
    mute = [fleet.control() for _ in range(20)]
    assert fleet.states() == {MODEL_ID: "ready", SHALLOW: "ready"}
    for s in mute:
        s.close()


def taken(pid):
    """Kilobytes of memory, descriptors, threads."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = {k: int(re.search(rf"^{k}:\s+(\d+)", status, re.M).group(1)) for k in ("VmRSS", "Threads")}
    return numbers["VmRSS"], len(os.listdir(f"/proc/{pid}/fd")), numbers["Threads"]


def test_load_and_unload_cycles_leave_nothing_behind(fleet):
    """SLUICE_LOAD_CYCLES says how many; the first few fill caches."""
    key = fleet.new_key("cycles", **LIMITS)
    watched = {"supervisor": fleet.process.pid, "gateway": fleet.pid_of("gateway")}

    def cycle():
        fleet.model("unload", SHALLOW)
        assert fleet.chat(key=key, model="quick").status_code == 503
        fleet.model("load", SHALLOW)
        fleet.wait_model(SHALLOW)
        assert fleet.chat(key=key, model="quick", max_tokens=2).status_code == 200

    for _ in range(3):
        cycle()
    before = {name: taken(pid) for name, pid in watched.items()}
    for _ in range(CYCLES):
        cycle()
    after = {name: taken(pid) for name, pid in watched.items()}
    print(before, after)
    for name in watched:
        (rss, fds, threads), (rss_now, fds_now, threads_now) = before[name], after[name]
        assert threads_now == threads and fds_now <= fds + 2, (name, before, after)
        assert rss_now <= rss * 1.02 + 1024, (name, before, after)
    assert fleet.status()[1][SHALLOW]["deaths"] == 0


def test_up_serves_the_list_that_its_file_has(shallow):
    base = scratch("up-list")
    s = Stack(base / "var")
    try:
        s.start()
        s.stop()
        text = s.config.read_text()
        section = re.search(r"(?m)^model:\n(?:[ #].*\n)*", text).group(0)
        s.config.write_text(text.replace(section, f"models: {json.dumps(models(shallow))}\n"))
        edited = s.config.read_text()
        done = subprocess.run([str(BIN), "up", "--dir", str(s.dir), "--model", str(MODEL)], capture_output=True, text=True,
                              timeout=60 * SLOW)
        assert done.returncode == 1 and "list of models" in done.stderr
        s.command = lambda: [str(BIN), "up", "--dir", str(s.dir)]
        s.start()
        wait_for("both", lambda: all(httpx2.get(s.base + "/readyz", timeout=5).json()["models"].values()), 30 * SLOW)
        for name in ("chat", "quick"):
            assert s.chat(model=name, max_tokens=2).status_code == 200
        assert s.config.read_text() == edited
        assert "unloaded" in s.cli("model", "unload", "--config", str(s.config), "quick").stdout
        assert (s.dir / "log" / "engine.2.test-shallow.log").read_text()
    finally:
        s.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)
