#!/usr/bin/env python3
"""What a busy engine does to its neighbours on the same cores: a journal's commit and a Redis round trip, idle and under
full load, at several priorities of the engine. Loopback only; needs the right to raise priorities (root).

    .venv/bin/python bench/neighbours.py --dir var --nice 0,5,10

DIR is the folder of a running `sluice up` that nobody else uses. A commit is what the journal's thread does for a group:
some hundred bytes appended, then fdatasync. Each number of `--nice` is set on all threads of the engine and measured under
--streams streams without end; the engine's tokens per second are those of its own counter meanwhile.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

import httpx2

from load import percentile

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

    def __init__(self, args):
        super().__init__(daemon=True)
        self.args, self.stopping = args, False
        self.start()

    def run(self):
        asyncio.run(self.all())

    async def all(self):
        async with httpx2.AsyncClient(timeout=600, limits=httpx2.Limits(max_connections=None)) as client:
            tasks = [asyncio.create_task(self.one(client, i)) for i in range(self.args.streams)]
            while not self.stopping:
                await asyncio.sleep(0.1)
            for t in tasks:
                t.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def one(self, client, i):
        body = {"model": self.args.model, "prompt": [1000 + i, 2000, 3000], "max_tokens": 1000, "temperature": 0,
                "ignore_eos": True, "stream": True}
        while True:
            async with client.stream("POST", self.args.base + "/v1/completions", json=body,
                                     headers={"authorization": f"Bearer {self.args.key}"}) as r:
                async for _ in r.aiter_bytes():
                    pass

    def stop(self):
        self.stopping = True
        self.join()


def renice(pid, nice):
    for tid in os.listdir(f"/proc/{pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(tid), nice)


def generated(args):
    for line in httpx2.get(f"{args.base}/metrics").text.splitlines():
        if line.startswith("vllm:generation_tokens_total"):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def measure(args, name):
    commit, ping = [], []
    threads = [threading.Thread(target=lambda: commit.extend(commits(args.journal, args.seconds))),
               threading.Thread(target=lambda: ping.extend(pings(args.redis, args.seconds)))]
    before, start = generated(args), time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rate = (generated(args) - before) / (time.perf_counter() - start)
    for what, times in (("commit", commit), ("ping", ping)):
        print(f"{name}: {what} n {len(times)}, median {statistics.median(times):.2f} ms, "
              f"p99 {percentile(times, 99):.2f} ms, max {max(times):.2f} ms", flush=True)
    print(f"{name}: engine {rate:.1f} tokens/s, load average {os.getloadavg()[0]:.2f}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", required=True, type=Path)
    p.add_argument("--binary", default="build/release/sluice")
    p.add_argument("--nice", default="0,5,10")
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--seconds", type=float, default=20)
    args = p.parse_args()
    config = {}
    for line in (args.dir / "sluice.yaml").read_text().splitlines():
        key, _, value = line.strip().partition(": ")
        config.setdefault(key, value.strip('"'))
        if line.startswith("redis:"):
            config.pop("socket", None)  # the engine's came first
    args.redis, args.model = config["socket"], config["id"]
    args.base, args.journal = f"http://127.0.0.1:{config['port']}", args.dir / "journal"
    args.key = (args.dir / "demo.key").read_text().strip()
    status = json.loads(subprocess.run([args.binary, "status", "--config", str(args.dir / "sluice.yaml"), "--json"],
                                       capture_output=True, text=True, check=True).stdout)
    measure(args, "idle")
    load = Load(args)
    time.sleep(3)
    for nice in map(int, args.nice.split(",")):
        renice(status["engines"][0]["pid"], nice)
        measure(args, f"busy, engine at nice {nice}")
    load.stop()


main()
