"""What tests/e2e/test_two_models_faults.py and bench/two_models.py share: two models under one supervisor, clients that ask
without end and note how each answer ended, and what can be done to an engine."""

import contextlib
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2

from conftest import MODEL, MODEL_ID, ROOT, SLOW, Several, scratch, sse_events, wait_for
from test_fleet import SHALLOW, Fleet

POISONED = "test/poisoned"
ERROR_MEMBERS = {"message", "type", "param", "code"}
# Of the tokens that reached the gateway, those whose text waits for the rest of a character or word.
HELD_TOKENS = 8


class Pair(Fleet):
    """The demo model, which nothing may happen to, and one block of it (`quick`), whose file is this pair's own. With
    `poisoned` a third one, the same block with a NaN in it."""

    def __init__(self, stack, base, stall_ms, poisoned=False):
        self.file, self.stall_ms = base / "quick.gguf", stall_ms
        subprocess.run([sys.executable, str(ROOT / "tools/shallow_gguf.py"), str(MODEL), str(self.file), "1"], check=True)
        shutil.copy(self.file, base / "whole.gguf")
        super().__init__(stack, base / "var", [
            {"path": str(MODEL), "id": MODEL_ID, "aliases": ["chat"], "threads": 1, "kv_mb": 256, "required": "on"},
            {"path": str(self.file), "id": SHALLOW, "aliases": ["quick"], "threads": 1, "kv_mb": 256}])
        if poisoned:
            poison(self.file, base / "poisoned.gguf")
            self.models.append({"path": str(base / "poisoned.gguf"), "id": POISONED, "threads": 1, "kv_mb": 256})

    def write_config(self):
        Several.write_config(self)
        self.config.write_text(self.config.read_text().replace("engine:\n", f"engine:\n  stall_ms: {self.stall_ms}\n"))

    def mend_file(self):
        """By rename, as models are replaced."""
        shutil.copy(self.file.parent / "whole.gguf", self.file.parent / "next.gguf")
        os.rename(self.file.parent / "next.gguf", self.file)

    def wait_successor(self, old):
        wait_for("its successor", lambda: self.engine_pid(SHALLOW) not in (None, old), 30 * SLOW)
        self.wait_model(SHALLOW)


def poison(source, target):
    """A NaN in the last norm: every row of logits is NaN."""
    subprocess.run([sys.executable, str(ROOT / "tools/damaged_gguf.py"), str(source), str(target), "output_norm.weight"],
                   check=True)


@contextlib.contextmanager
def pair(stack, stall_ms, poisoned=False):
    base = scratch("pair")
    p = Pair(stack, base, stall_ms, poisoned)
    try:
        yield p
    finally:
        p.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


class Answer:
    """How one request ended. kind: "ok"; "refused": an error in place of an answer; "broken": an error event in a stream
    that had begun; anything else is what must not be, in words."""

    def __init__(self, name, streamed):
        self.name, self.streamed, self.kind, self.status = name, streamed, "no end", None
        self.code, self.tokens, self.usage = None, 0, None
        self.began, self.ended = time.monotonic(), None

    @property
    def seconds(self):
        return self.ended - self.began

    def take_error(self, kind, error):
        self.kind = kind if set(error) == ERROR_MEMBERS else f"error of another shape: {error}"
        self.code = error.get("code")

    def take_response(self, r):
        self.status = r.status_code
        if r.status_code == 200:
            self.kind, self.usage = "ok", r.json()["usage"]
            return
        self.take_error("refused", r.json()["error"])
        if r.status_code == 503 and int(r.headers.get("retry-after", 0)) < 1:
            self.kind = "503 without retry-after"

    def take_stream(self, text):
        events = sse_events(text)
        for e in events:
            if e != "[DONE]" and e.get("choices"):
                self.tokens += len((e["choices"][0].get("logprobs") or {}).get("content") or [])
        data = [e for e in events if e != "[DONE]"]
        if data and "error" in data[-1]:
            self.take_error("broken", data[-1]["error"])
        elif events and events[-1] == "[DONE]" and data[-1].get("usage"):
            self.kind, self.usage = "ok", data[-1]["usage"]
        else:
            self.kind = f"a stream cut off: {text[-100:]!r}"


class Clients:
    """`n` of them on one model, each with one request after the other, streamed and whole in turn, until stopped;
    prompts of up to `sentences`, answers of up to `tokens`, `pause_s` after an error."""

    def __init__(self, fleet, key, model, n, tokens=24, sentences=12, pause_s=0.05):
        self.fleet, self.key, self.model = fleet, key, model
        self.tokens, self.sentences, self.pause_s = tokens, sentences, pause_s
        self.n, self.count, self.answers, self.running = n, itertools.count(), [], {}
        self.start()

    def start(self):
        """Also after a stop."""
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(self.n)]
        for t in self.threads:
            t.start()

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(60 * SLOW)
        assert not any(t.is_alive() for t in self.threads), "a request hangs"

    def run(self, i):
        rng = random.Random(i)
        with httpx2.Client(timeout=60 * SLOW) as client:
            while not self.stopping.is_set():
                n = next(self.count)
                answer = self.one(client, f"{self.model}-{n}", n % 2 == 0, rng)
                self.answers.append(answer)
                if answer.kind != "ok":
                    time.sleep(self.pause_s)

    def one(self, client, name, streamed, rng):
        a = Answer(name, streamed)
        body = {"model": self.model, "max_tokens": rng.randint(2, self.tokens), "ignore_eos": True, "temperature": 0.8,
                "messages": [{"role": "user", "content": f"Tell me story {name}. " * rng.randint(1, self.sentences)}]}
        headers = {"authorization": f"Bearer {self.key}", "x-client-request-id": name}
        if streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True}
        self.running[name] = a
        try:
            with client.stream("POST", self.fleet.base + "/v1/chat/completions", json=body, headers=headers) as r:
                a.status = r.status_code
                text = "".join(r.iter_text())
                if streamed and r.status_code == 200:
                    a.take_stream(text)
                else:
                    a.take_response(httpx2.Response(r.status_code, headers={"retry-after": r.headers.get("retry-after", "0")},
                                                    content=text.encode()))
        except httpx2.HTTPError as e:
            a.kind = f"no answer: {type(e).__name__}"
        a.ended = time.monotonic()
        del self.running[name]
        return a

    def n_ok(self):
        return sum(a.kind == "ok" for a in list(self.answers))

    def wait_ok(self, more):
        """Until so many more were answered."""
        before = self.n_ok()
        wait_for("answers", lambda: self.n_ok() >= before + more, 60 * SLOW)


# ---- what the answers must have cost ----

def cost_nanos(row):
    """By the demo's prices: 0.10, cached 0.05, output 0.40 per million tokens, rounded half up."""
    new = row["prompt_tokens"] - row["cached_tokens"]
    return (new * 100_000_000 + row["cached_tokens"] * 50_000_000 + row["output_tokens"] * 400_000_000 + 500_000) // 1_000_000


def check_row(a, row):
    """By the table in ARCHITECTURE.md, "What is billed"."""
    if a.kind == "ok":
        assert row["outcome"] == "completed", a.name
        assert (row["prompt_tokens"], row["output_tokens"]) == (a.usage["prompt_tokens"], a.usage["completion_tokens"])
        return
    assert row["outcome"] == "failed", a.name
    if a.streamed:
        assert a.tokens <= row["output_tokens"] <= a.tokens + HELD_TOKENS, a.name
    if row["output_tokens"] == 0:
        assert row["prompt_tokens"] == 0, "nothing before the first token"


def check_bill(fleet, tenant, answers):
    """Every answer has its one row, a refusal at the door none, and no row is of anything else."""
    owed = {a.name for a in answers if a.kind != "refused"}
    wait_for("the rows", lambda: owed <= {r["client_request_id"] for r in fleet.rows("t.name = %s", tenant)}, 20 * SLOW, 0.3)
    rows = fleet.rows("t.name = %s", tenant)
    by_name = {r["client_request_id"]: r for r in rows}
    assert len(by_name) == len(rows) and set(by_name) <= {a.name for a in answers}
    for a in answers:
        if a.name in by_name:
            check_row(a, by_name[a.name])
    assert all(r["cost_nanos"] == cost_nanos(r) for r in rows)


# ---- what can happen to an engine ----

def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def wait_gone(pid, seconds=30):
    """The moment, or a failure."""
    wait_for("its death", lambda: is_gone(pid), seconds * SLOW, step=0.002)
    return time.monotonic()


CGROUPS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))


def memory_group():
    """A memory control group of our own, as (folder, its file of the limit); None where none can be had."""
    for parent, limit in CGROUPS:
        group = parent / f"sluice-faults-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            return group, limit
        group.rmdir()
    return None


@contextlib.contextmanager
def starved(pid, allowed=1 << 20):
    """The kernel's out-of-memory killer takes the process once it needs `allowed` bytes more than it has: what it has
    stays its old group's. Yields False where there is no control group to be had."""
    made = memory_group()
    if made is None:
        yield False
        return
    group, limit = made
    try:
        (group / limit).write_text(str(allowed))
        (group / "cgroup.procs").write_text(str(pid))
        yield True
    finally:
        wait_for("an empty group", lambda: not (group / "cgroup.procs").read_text().split(), 30 * SLOW)
        group.rmdir()


@contextlib.contextmanager
def unable_to_allocate(pid):
    """Neither the heap nor private mappings grow meanwhile: the process's allocations fail."""
    before = resource.prlimit(pid, resource.RLIMIT_DATA, (4096, resource.prlimit(pid, resource.RLIMIT_DATA)[1]))
    try:
        yield
    finally:
        if not is_gone(pid):
            resource.prlimit(pid, resource.RLIMIT_DATA, before)


def kill(fleet, pid):
    os.kill(pid, signal.SIGKILL)
    return wait_gone(pid)


def freeze(fleet, pid):
    """Ends with its watchdog's verdict."""
    os.kill(pid, signal.SIGSTOP)
    return wait_gone(pid, fleet.stall_ms / 1000 + 20)


def truncate(fleet, pid):
    """The file is cut under the engine that has it mapped."""
    os.truncate(fleet.file, 0)
    return wait_gone(pid)
