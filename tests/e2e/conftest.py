"""The real thing for end-to-end tests: `sluice up` with its own PostgreSQL, Redis, engine and gateway.

SLUICE_BIN         the binary under test (default build/release/sluice)
SLUICE_TEST_MODEL  the model file (default: the demo model in the shared cache)
"""

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpcore2
import httpx2
import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("SLUICE_BIN", ROOT / "build/release/sluice")).resolve()
CACHE = Path(os.environ.get("SLUICE_CACHE")
             or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice")
MODEL = Path(os.environ.get("SLUICE_TEST_MODEL", CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
MODEL_ID = "smollm2-135m-instruct"
SANITIZED = "release" not in BIN.parts
# Sanitized builds compute several times slower: every wait is scaled by this.
SLOW = 6 if SANITIZED else 1

# The system's certificates are read once: every client would read them anew, which takes longer than most requests do.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


def free_ports(n):
    """Different ones: all are held until the last is found."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def free_port():
    return free_ports(1)[0]


def wait_for(what, predicate, seconds, step=0.05):
    """Polls until predicate() is true; fails the test with `what` when it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = predicate()
        if value:
            return value
        time.sleep(step)
    pytest.fail(f"{what}: not within {seconds} s")


class Stack:
    """One `sluice up` under a folder of its own."""

    def __init__(self, directory, model=MODEL, env=None):
        self.dir = Path(directory)
        self.port, self.tls_port, self.admin_port = free_ports(3)
        self.model_file = model
        self.env = env
        self.process = None

    def command(self):
        return [str(BIN), "up", "--dir", str(self.dir), "--model", str(self.model_file), "--port", str(self.port),
                "--tls-port", str(self.tls_port), "--admin-port", str(self.admin_port)]

    def start(self, wait=True):
        self.dir.mkdir(parents=True, exist_ok=True)
        self.output = open(self.dir.parent / (self.dir.name + ".out"), "ab")
        self.process = subprocess.Popen(self.command(), stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, env={**os.environ, **(self.env or {})})
        if wait:
            self.wait_ready()
        return self

    def text(self):
        return (self.dir.parent / (self.dir.name + ".out")).read_text(errors="replace")

    def is_ready(self):
        if self.process.poll() is not None:
            pytest.fail(f"sluice up ended with {self.process.returncode}:\n{self.text()}")
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200
        except httpx2.HTTPError:
            return False

    def parts(self):
        return httpx2.get(self.base + "/readyz", timeout=5).json()

    def wait_ready(self, seconds=60):
        wait_for("ready", self.is_ready, seconds * SLOW)

    def stop(self, sig=signal.SIGINT):
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                self.process.wait(60 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.output.close()
        return self.process.returncode

    # ---- the processes under the launcher ----

    def descendants(self):
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                kids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except OSError:
                continue
            found += [int(k) for k in kids]
            todo += [int(k) for k in kids]
        return found

    def pid_of(self, part):
        """pid of "postgres", "redis", "engine" or "gateway" (a direct child of the launcher)."""
        needle = {"postgres": "/postgres", "redis": "redis-server", "engine": "sluice\0engine",
                  "gateway": "sluice\0serve"}[part]
        kids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in kids:
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if needle in line:
                return int(pid)
        return None

    def kill(self, part, sig=signal.SIGKILL):
        pid = wait_for(f"a {part}", lambda: self.pid_of(part), 20 * SLOW)
        os.kill(pid, sig)
        return pid

    def configure(self, section, line):
        """Another key in a section; whoever is started next reads it."""
        text = self.config.read_text()
        assert f"\n{section}:\n" in text
        self.config.write_text(text.replace(f"\n{section}:\n", f"\n{section}:\n  {line}\n", 1))

    def restart(self, *parts):
        """Kills them, and waits until they are back."""
        for part in parts:
            self.kill(part)
        wait_for("the loss seen", lambda: not self.is_ready(), 20 * SLOW)
        self.wait_ready()

    # ---- talking to it ----

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self):
        return self.dir / "sluice.yaml"

    @property
    def demo_key(self):
        return (self.dir / "demo.key").read_text().strip()

    def cli(self, *args, check=True, **kwargs):
        done = subprocess.run([str(BIN), *args], capture_output=True, text=True, timeout=120 * SLOW, **kwargs)
        if check and done.returncode != 0:
            pytest.fail(f"sluice {' '.join(args)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def new_key(self, tenant, **limits):
        """A fresh key of `tenant`; limits as rpm=, tpm=, concurrency=, scopes=, expires=, tenant_rpm=…"""
        args = ["key", "create", "--config", str(self.config), "--tenant", tenant]
        for name, value in limits.items():
            args += [f"--{name.replace('_', '-')}", str(value)]
        return self.cli(*args).stdout.strip()

    def database(self):
        text = self.config.read_text()
        conninfo = re.search(r"^\s*conninfo:\s*(.+)$", text, re.M).group(1).strip().strip("'\"")
        return psycopg.connect(conninfo, autocommit=True)

    def rows(self, where="true", *params):
        """usage_events as dicts."""
        with self.database() as db:
            cur = db.execute(f"SELECT e.*, t.name AS tenant FROM usage_events e JOIN tenants t ON t.id = e.tenant_id "
                             f"WHERE {where} ORDER BY admitted_at", params)
            names = [c.name for c in cur.description]
            return [dict(zip(names, row)) for row in cur.fetchall()]

    def wait_rows(self, n, where="true", *params, seconds=10):
        """Waits until at least n rows match and returns them."""
        got = []

        def enough():
            got[:] = self.rows(where, *params)
            return len(got) >= n

        wait_for(f"{n} usage rows", enough, seconds * SLOW, 0.1)
        return got

    def metrics(self):
        text = httpx2.get(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=10).text
        return {m.group(1): float(m.group(2))
                for m in re.finditer(r"^([a-zA-Z_:][\w:]*(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def metric(self, name):
        """The sum of a metric's series, whatever their labels."""
        return sum(v for k, v in self.metrics().items() if k.partition("{")[0] == name)

    def post(self, path, body, key=None, client=None, **kwargs):
        headers = {"authorization": f"Bearer {key or self.demo_key}", **kwargs.pop("headers", {})}
        return (client or httpx2).post(self.base + path, json=body, headers=headers, timeout=120 * SLOW, **kwargs)

    def get(self, path, key=None):
        headers = {"authorization": f"Bearer {key or self.demo_key}"}
        return httpx2.get(self.base + path, headers=headers, timeout=60 * SLOW)

    def chat(self, text="Say hello.", key=None, **fields):
        body = {"model": MODEL_ID, "messages": [{"role": "user", "content": text}], "max_tokens": 8,
                "temperature": 0, **fields}
        return self.post("/v1/chat/completions", body, key)


class Several(Stack):
    """A gateway and an engine per model, each started by hand, on another stack's databases.

    models: one dict of keys each, as in the file's `models`."""

    def __init__(self, other, directory, models):
        super().__init__(directory)
        self.other, self.models = other, models
        self.engines = {}

    @property
    def config(self):
        return self.other.dir / f"{self.dir.name}.yaml"  # beside the stack's own: its paths are relative

    @property
    def demo_key(self):
        return self.other.demo_key

    def write_config(self):
        text = self.other.config.read_text()
        kept = text[text.index("postgres:"):text.index("billing:")]
        self.config.write_text(f"models: {json.dumps(self.models)}\n"  # JSON is YAML
                               f"engine:\n  socket: {self.dir}/engine.sock\n"
                               f"server:\n  port: {self.port}\n  admin_port: {self.admin_port}\n{kept}"
                               f"billing:\n  journal_dir: {self.dir}/journal\n")

    def spawn(self, *args):
        return subprocess.Popen([str(BIN), *args], stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT)

    def start_engine(self, model):
        self.engines[model] = self.spawn("engine", "--config", str(self.config), "--model-id", model)

    def kill_engine(self, model):
        self.engines[model].kill()
        self.engines[model].wait()

    def wait_model(self, model, there=True):
        wait_for(f"{model} {'there' if there else 'away'}", lambda: self.parts()["models"][model] == there, 20 * SLOW)

    def start(self, wait=True):
        (self.dir / "journal").mkdir(parents=True)
        self.output = open(self.dir.parent / (self.dir.name + ".out"), "ab")
        self.write_config()
        for m in self.models:
            self.start_engine(m["id"])
        self.process = self.spawn("serve", "--config", str(self.config))
        if wait:
            self.wait_ready()
            for m in self.models:
                self.wait_model(m["id"])
        return self

    def stop(self, sig=signal.SIGTERM):
        for e in self.engines.values():
            e.terminate()
        try:
            return super().stop(sig)
        finally:
            for e in self.engines.values():
                e.kill()
                e.wait()


def scratch(name):
    """A folder that an unprivileged postgres can reach, also when the tests run as root."""
    base = Path(tempfile.mkdtemp(prefix=f"sluice-{name}-", dir="/tmp"))
    base.chmod(0o755)
    return base


@pytest.fixture(scope="session")
def stack():
    """Shared by the tests that break nothing."""
    base = scratch("e2e")
    s = Stack(base / "var")
    try:
        s.start()
        yield s
    finally:
        s.stop()
        keep = os.environ.get("SLUICE_KEEP_LOGS")
        if not keep:
            shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def one_block():
    """The demo model's first block, under its name: nonsense, but a quarter of a token's work.
    For loads whose text nobody reads."""
    base = scratch("block")
    subprocess.run([sys.executable, str(ROOT / "tools/shallow_gguf.py"), str(MODEL), str(base / MODEL.name), "1"], check=True)
    yield base / MODEL.name
    shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def stack_of_its_own(name, model=MODEL):
    """In a folder of its own, not started; stopped and removed at the end."""
    base = scratch(name)
    s = Stack(base / "var", model)
    try:
        yield s
    finally:
        s.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def own_stack():
    """A stack of the test's own, to be broken."""
    with stack_of_its_own("own") as s:
        yield s


@pytest.fixture
def quick_stack(one_block):
    """The same with the one block."""
    with stack_of_its_own("quick", one_block) as s:
        yield s


def sse_events(text):
    """The data of each event of a whole stream; JSON parsed, "[DONE]" as it is."""
    out = []
    for block in text.split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: "):
                data = line[6:]
                out.append(data if data == "[DONE]" else json.loads(data))
    return out
