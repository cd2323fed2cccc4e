#!/usr/bin/env python3
"""What a busy engine does to its neighbours on the same cores: a journal's commit and a Redis round trip, idle and under
full load, at several priorities of the engine. Starts a stack of its own; loopback only; needs the right to raise
priorities (root).

    .venv/bin/python bench/neighbours.py --nice 0,5,10 --rounds 2 --seconds 25

A commit is what the journal's thread does for a group: some hundred bytes appended in the journal's folder, then fdatasync.
A round trip is a PING over Redis' Unix socket. Each number of --nice is set on all threads of the engine and measured under
--streams streams without end; the engine's tokens per second are those of its own counter meanwhile. Every round measures
idle and each priority once. Prints a table for bench/results. SLUICE_BIN names the binary.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

import httpx2

from load import percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/e2e"))

from conftest import MODEL_ID, Stack, scratch  # noqa: E402

RECORD = b"\0" * 256  # as a few records of a group


def commits(folder, seconds, pause=0.005):
    """Times of append and fdatasync, in ms, about 200 a second."""
    path, out = Path(folder) / "neighbours.bench", []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            t = time.perf_counter()
            os.write(fd, RECORD)
            os.fdatasync(fd)
            out.append(1000 * (time.perf_counter() - t))
            time.sleep(pause)
    finally:
        os.close(fd)
        path.unlink()
    return out


def pings(path, seconds, pause=0.002):
    """Times of PING over Redis' Unix socket, in ms."""
    out = []
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            t = time.perf_counter()
            s.sendall(b"PING\r\n")
            assert s.recv(64) == b"+PONG\r\n"
            out.append(1000 * (time.perf_counter() - t))
            time.sleep(pause)
    return out


class Load(threading.Thread):
    """Streams without end; each is asked again when it is done."""

    def __init__(self, stack, n_streams):
        super().__init__(daemon=True)
        self.stack, self.n_streams, self.stopping = stack, n_streams, False
        self.start()

    def run(self):
        asyncio.run(self.all())

    async def all(self):
        async with httpx2.AsyncClient(timeout=600, limits=httpx2.Limits(max_connections=None)) as client:
            tasks = [asyncio.create_task(self.one(client, i)) for i in range(self.n_streams)]
            while not self.stopping:
                await asyncio.sleep(0.1)
            for t in tasks:
                t.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def one(self, client, i):
        body = {"model": MODEL_ID, "prompt": [1000 + i, 2000, 3000], "max_tokens": 1000, "temperature": 0,
                "ignore_eos": True, "stream": True}
        while True:
            async with client.stream("POST", self.stack.base + "/v1/completions", json=body,
                                     headers={"authorization": f"Bearer {self.stack.demo_key}"}) as r:
                if r.status_code != 200:
                    raise RuntimeError(f"{r.status_code}: {(await r.aread()).decode()}")
                async for _ in r.aiter_bytes():
                    pass

    def stop(self):
        self.stopping = True
        self.join()


@contextlib.contextmanager
def load(stack, n_streams):
    """The engine is busy from the start to the end."""
    streams = Load(stack, n_streams)
    try:
        end = time.monotonic() + 60
        while stack.metric("vllm:num_requests_running") < n_streams:
            if time.monotonic() > end or not streams.is_alive():
                sys.exit("the streams did not all begin")
            time.sleep(0.1)
        yield
    finally:
        streams.stop()


def renice(pid, nice):
    for tid in os.listdir(f"/proc/{pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(tid), nice)


class Case:
    """What was measured so far at one priority of the engine, or without work for it (nice: None)."""

    def __init__(self, nice):
        self.nice, self.commits, self.pings, self.tokens, self.seconds = nice, [], [], 0, 0
        self.name = "idle" if nice is None else f"busy, nice {nice}"

    def measure(self, stack, seconds):
        redis = re.search(r"(?ms)^redis:\n.*?^  socket: *(\S+)", stack.config.read_text()).group(1).strip('"')
        threads = [threading.Thread(target=lambda: self.commits.extend(commits(stack.dir / "journal", seconds))),
                   threading.Thread(target=lambda: self.pings.extend(pings(redis, seconds)))]
        before, start = stack.metric("vllm:generation_tokens_total"), time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.tokens += stack.metric("vllm:generation_tokens_total") - before
        self.seconds += time.perf_counter() - start

    def row(self):
        times = " | ".join(f"{', '.join(f'{percentile(t, p):.2f}' for p in (50, 99))}, {max(t):.0f}"
                           for t in (self.commits, self.pings))
        return f"| {self.name} | {self.tokens / self.seconds:.0f} | {times} |"


def one_round(stack, args, cases):
    for c in cases:
        if c.nice is None:
            c.measure(stack, args.seconds)
            continue
        renice(stack.pid_of("engine"), c.nice)
        with load(stack, args.streams):
            c.measure(stack, args.seconds)
        print(f"{c.name}: load average {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nice", default="0,5,10")
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=25, help="of each measurement")
    args = p.parse_args()
    cases = [Case(None), *(Case(int(n)) for n in args.nice.split(","))]
    base = scratch("neighbours")
    stack = Stack(base / "var")
    try:
        stack.start()
        with load(stack, args.streams):  # pages, buffers and repacked weights
            time.sleep(args.seconds / 5)
        for _ in range(args.rounds):
            one_round(stack, args, cases)
    finally:
        stack.stop()
        shutil.rmtree(base, ignore_errors=True)
    print("| the engine | tokens/s | journal's commit, ms: p50, p99, max | Redis round trip, ms: p50, p99, max |")
    print("|---|---:|---|---|")
    for c in cases:
        print(c.row())


main()
