"""An engine replaced while it serves: `sluice model swap` loads a second one from the file as it is now, which takes the
first one's place when it is ready, and no request is lost by it.

SLUICE_SWAP_REQUESTS  so many, at least, are served while models are swapped (default 300)
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import httpx2
import pytest

from conftest import BIN, MODEL as LARGER, ROOT, SANITIZED, SLOW, Stack, scratch, wait_for

FILES = [ROOT / "build/models" / name for name in ("llama-gqa.gguf", "qwen3.gguf")]
SWAPS = 5
BETWEEN = int(os.environ.get("SLUICE_SWAP_REQUESTS", 50 if SANITIZED else 300)) // SWAPS
CLIENTS = 8
MODEL = "model"


@contextlib.contextmanager
def own_file():
    """A stack whose model file is one that may be replaced."""
    base = scratch("swap")
    shutil.copy(FILES[0], base / "model.gguf")
    s = Stack(base / "var", base / "model.gguf")
    s.file = base / "model.gguf"
    try:
        yield s.start()
    finally:
        s.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def shared():
    with own_file() as s:
        yield s


@pytest.fixture
def swapped(shared):
    """It serves the first file, whatever the test before did."""
    text = shared.config.read_text()
    yield shared
    shared.config.write_text(text)
    replace(shared, FILES[0])
    ask(shared, "swap")
    shared.wait_ready()


def replace(stack, other):
    """As docs/operations.md says: beside it, and then renamed. Engines that have the old one mapped keep it."""
    beside = stack.file.with_suffix(".new")
    shutil.copy(other, beside)
    os.replace(beside, stack.file)


def ask(stack, verb, check=True):
    return stack.cli("model", verb, "--config", str(stack.config), *([] if verb == "list" else [MODEL]), check=check)


def begin_swap(stack):
    return subprocess.Popen([str(BIN), "model", "swap", "--config", str(stack.config), MODEL], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def arguments(pid):
    """Empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def engines(stack):
    """pid: arguments of every engine under the launcher."""
    return {pid: line for pid in stack.descendants() if (line := arguments(pid))[1:2] == ["engine"]}


def successor(stack, first):
    return next((pid for pid in engines(stack) if pid != first), None)


def left_behind(stack):
    return [p.name for p in (stack.dir / "sock").iterdir() if ".next" in p.name]


def serving_pid(stack):
    """As `sluice model list` has it."""
    return int(ask(stack, "list").stdout.split()[2])


def chat(stack, **fields):
    return stack.chat("Tell me something.", model=MODEL, ignore_eos=True, **fields)


# ---- what needs only the supervisor ----

def test_a_successor_that_fails_leaves_the_first_alone(swapped):
    stack, pid = swapped, serving_pid(swapped)
    text = stack.config.read_text()
    stack.config.write_text(text.replace("model.gguf", "nothing.gguf"))
    done = ask(stack, "swap", check=False)
    assert done.returncode == 1 and "the engine that serves stays" in done.stderr and "nothing.gguf" in done.stderr
    stack.config.write_text(text)
    stack.configure("model", "kv_mb: 1048576")
    done = ask(stack, "swap", check=False)
    assert done.returncode == 1 and f"not enough memory for model {MODEL} beside 1 more: weights " in done.stderr
    assert "its last swap failed" in ask(stack, "list").stdout
    assert list(engines(stack)) == [pid] and left_behind(stack) == []
    assert chat(stack).status_code == 200


def test_a_successor_that_is_killed_is_said_to_be(swapped):
    stack, pid = swapped, serving_pid(swapped)
    replace(stack, LARGER)
    command = begin_swap(stack)
    os.kill(wait_for("a successor", lambda: successor(stack, pid), 10 * SLOW, 0.001), signal.SIGKILL)
    _, err = command.communicate(timeout=30 * SLOW)
    assert command.returncode == 1 and "signal 9 (Killed)" in err
    assert list(engines(stack)) == [pid] and left_behind(stack) == []
    assert chat(stack).status_code == 200


def test_the_first_stays_until_its_gateway_has_left(swapped):
    """With a gateway that hears nothing."""
    stack, first = swapped, serving_pid(swapped)
    answer = chat(stack).json()["choices"]
    gateway = stack.kill("gateway", signal.SIGSTOP)
    command = begin_swap(stack)
    wait_for("handed over", lambda: "ending its requests" in ask(stack, "list").stdout, 30 * SLOW)
    second = serving_pid(stack)
    assert set(engines(stack)) == {first, second} and first != second
    done = ask(stack, "swap", check=False)
    assert done.returncode == 1 and f"the engine before it (pid {first}) still ends its requests" in done.stderr
    os.kill(gateway, signal.SIGKILL)
    out, _ = command.communicate(timeout=30 * SLOW)
    assert command.returncode == 0
    lines = out.splitlines()
    assert lines[0] == "the successor loads" and lines[1].startswith("ready after ")
    assert lines[2:] == ["handed over", "the old engine has left", f"{MODEL} is ready"]
    assert list(engines(stack)) == [second] and left_behind(stack) == []
    stack.wait_ready()
    assert chat(stack).json()["choices"] == answer
    stack.kill("engine")  # it is supervised like the first
    wait_for("another", lambda: set(engines(stack)) - {second}, 20 * SLOW)
    stack.wait_ready()
    assert chat(stack).json()["choices"] == answer


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_a_supervisor_that_ends_in_the_middle_leaves_nothing(sig):
    with own_file() as stack:
        gateway = stack.kill("gateway", signal.SIGSTOP)
        command = begin_swap(stack)
        wait_for("handed over", lambda: "ending its requests" in ask(stack, "list").stdout, 30 * SLOW)
        pids = engines(stack)
        assert len(pids) == 2
        stack.process.send_signal(sig)
        os.kill(gateway, signal.SIGCONT)
        stack.process.wait(60 * SLOW)
        command.communicate(timeout=30 * SLOW)
        wait_for("no engine", lambda: not any(arguments(p) for p in pids), 30 * SLOW)
        if sig == signal.SIGTERM:
            assert left_behind(stack) == []
        stack.start()
        assert left_behind(stack) == [] and len(engines(stack)) == 1
        assert chat(stack).status_code == 200


def test_what_is_not_loaded_is_loaded(swapped):
    ask(swapped, "unload")
    replace(swapped, FILES[1])
    done = ask(swapped, "swap")
    assert done.stdout == f"{MODEL} is ready\n" and len(engines(swapped)) == 1


# ---- the whole ----

class Load:
    """Clients that ask without a pause, streams and not; what each heard, by its own id."""

    def __init__(self, stack, key):
        self.stack, self.key = stack, key
        self.numbers = itertools.count()
        self.over = threading.Event()
        self.heard, self.failed = {}, []
        self.threads = [threading.Thread(target=self.run) for _ in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def run(self):
        with httpx2.Client(timeout=120 * SLOW) as client:
            while not self.over.is_set():
                n = next(self.numbers)
                try:
                    self.heard[f"swap-{n}"] = self.one(client, n)
                except (AssertionError, KeyError, ValueError, httpx2.HTTPError) as e:
                    self.failed.append((n, repr(e)))

    def one(self, client, n):
        """(text, usage) of a whole answer."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me something."}], "ignore_eos": True,
                "max_tokens": 16 if n % 3 else 100, "temperature": 0}
        headers = {"x-client-request-id": f"swap-{n}"}
        if n % 2:
            r = self.stack.post("/v1/chat/completions", body, self.key, client, headers=headers)
            assert r.status_code == 200, r.text
            return r.json()["choices"][0]["message"]["content"], r.json()["usage"]
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        text, usage, last = "", None, ""
        headers |= {"authorization": f"Bearer {self.key}"}
        with client.stream("POST", self.stack.base + "/v1/chat/completions", json=body, headers=headers) as r:
            assert r.status_code == 200, r.read()
            for line in r.iter_lines():
                last = line if line.startswith("data: ") else last
                event = json.loads(line[6:]) if line.startswith("data: {") else {}
                assert "error" not in event, event
                usage = event.get("usage") or usage
                text += "".join(c["delta"].get("content") or "" for c in event.get("choices", ()))
        assert last == "data: [DONE]", "cut short"
        return text, usage

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join(120 * SLOW)
        assert not any(t.is_alive() for t in self.threads)


def answers(stack, key):
    """What the model that serves now says, short and long."""
    texts = set()
    for tokens in (16, 100):
        r = stack.chat("Tell me something.", key, model=MODEL, ignore_eos=True, max_tokens=tokens)
        texts.add(r.json()["choices"][0]["message"]["content"])
    return texts


def test_no_request_fails_while_models_are_swapped(swapped):
    stack = swapped
    key = stack.new_key("swap", rpm=100000, tpm=100000000, concurrency=100)
    known = [answers(stack, key)]
    pids = [serving_pid(stack)]
    load = Load(stack, key)
    try:
        for n in range(1, SWAPS + 1):
            before = len(load.heard)
            wait_for("requests between swaps", lambda: len(load.heard) >= before + BETWEEN, (120 + BETWEEN) * SLOW)
            replace(stack, FILES[n % 2])
            assert "the old engine has left\n" in ask(stack, "swap").stdout
            pids.append(serving_pid(stack))
            known.append(answers(stack, key))
    finally:
        load.stop()
    assert load.failed == []
    assert len(load.heard) >= SWAPS * BETWEEN
    assert len(set(pids)) == SWAPS + 1
    assert known[0] != known[1], "two models"
    assert all(k == known[i % 2] for i, k in enumerate(known))
    said = {text for text, _ in load.heard.values()}
    assert said <= known[0] | known[1], "an answer is of one model from its beginning to its end"
    rows = stack.wait_rows(len(load.heard), "t.name = 'swap' AND e.client_request_id LIKE 'swap-%%'", seconds=30)
    assert len(rows) == len(load.heard) and all(r["outcome"] == "completed" for r in rows)
    for r in rows:
        usage = load.heard[r["client_request_id"]][1]
        assert (r["prompt_tokens"], r["output_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
