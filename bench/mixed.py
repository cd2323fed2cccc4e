#!/usr/bin/env python3
"""What a mixed load does to those who share the engine, loopback only.

    .venv/bin/python bench/mixed.py latency --base http://127.0.0.1:8080/v1 --key "$(cat var/demo.key)" --step-ms 50
    .venv/bin/python bench/mixed.py soak --base http://127.0.0.1:8080/v1 --key "$(cat var/demo.key)" --streams 32 \\
        --requests 1000 --metrics http://127.0.0.1:9090/metrics

latency: streams decode; a prompt of nearly the full context is prefilled beside them; short requests come one after
another meanwhile. Prints the short ones' time to first token against the step budget, and the streams' time between
tokens while the prefill ran.

soak: requests of random lengths, a fifth of them cut off by the client after a random number of tokens. Prints output
tokens per second of each tenth of them, and what /metrics says once all have gone; ends with 1 where the last tenth is
more than --within per cent away from the first. On a machine that does other work too, seconds say nothing: there give
the engine's --pid, and its CPU time is what counts (with engine.threads 1: two threads spin while one waits for its core).
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from load import percentile

FILLER = range(1000, 30000)  # ordinary tokens of the demo model's vocabulary


def prompt_of(rng, n):
    """n token ids that no earlier prompt began with: nothing of it is in the prefix cache."""
    return [rng.choice(FILLER) for _ in range(n)]


async def stream(client, args, prompt, max_tokens, on_token=None, cut_tokens=None):
    """One streamed completion. Returns (time to first token, tokens) in seconds; calls on_token(now) at each event
    with text. cut_tokens: the client goes away after so many of them; 0: at the first sign of an answer."""
    body = {"model": args.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}
    start, first, tokens, n_events = time.perf_counter(), None, 0, 0
    async with client.stream("POST", args.base + "/completions", json=body,
                             headers={"authorization": f"Bearer {args.key}"}) as r:
        if r.status_code != 200:
            raise RuntimeError(f"{r.status_code}: {(await r.aread()).decode()}")
        if cut_tokens == 0:
            return first, tokens
        async for line in r.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event, now = json.loads(line[6:]), time.perf_counter()
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if event["choices"]:
                n_events += 1
                first = first or now - start
                if on_token:
                    on_token(now)
            if n_events == cut_tokens:
                break
    return first, tokens


async def latency(client, args):
    rng = random.Random(args.seed)
    times = [[] for _ in range(args.streams)]
    decoding = [asyncio.create_task(stream(client, args, prompt_of(rng, 16), args.context - 64, times[i].append))
                for i in range(args.streams)]
    await asyncio.sleep(2)
    alone_from = time.perf_counter()
    await asyncio.sleep(args.alone_s)
    begin = time.perf_counter()
    long = asyncio.create_task(stream(client, args, prompt_of(rng, args.context - 8), 1))
    short = []
    await asyncio.sleep(0.3)
    while not long.done():
        short.append((await stream(client, args, prompt_of(rng, 8), 4))[0])
    end = time.perf_counter()
    for task in decoding:
        task.cancel()
    await asyncio.gather(*decoding, return_exceptions=True)

    def gaps(a, b):
        return [y - x for t in times for x, y in zip(t, t[1:]) if a <= x and y <= b]

    def report(name, values):
        print(f"{name}: n {len(values)}, median {1000 * statistics.median(values):.1f} ms, "
              f"p99 {1000 * percentile(values, 99):.1f} ms, max {1000 * max(values):.1f} ms")

    print(f"prefill of {args.context - 8} tokens beside {args.streams} streams: {end - begin:.1f} s")
    report("time between tokens, before", gaps(alone_from, begin))
    report("time between tokens, during the prefill", gaps(begin, end))
    report("time to first token of short requests during the prefill", short)
    print(f"step budget {args.step_ms} ms: worst short request {1000 * max(short) / args.step_ms:.2f} budgets")


def cpu_seconds(pid):
    """That a process's threads have had so far; 0 without one."""
    tasks = Path(f"/proc/{pid}/task").iterdir() if pid else ()
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9


class Tenths:
    """Time and output tokens of each tenth of the requests, between the starts of their first ones. With as many requests
    in flight from the first tenth to the last, a start is another request's end, and no drain is in it."""

    def __init__(self, n_requests, pid):
        self.size, self.pid, self.marks, self.tokens = n_requests // 10, pid, [], 0

    def start(self, index):
        if index % self.size != 0:
            return
        self.marks.append((time.perf_counter(), cpu_seconds(self.pid), self.tokens))
        if len(self.marks) > 1:
            print(f"{index} requests: {self.rates()[-1]:.1f} output tokens/s{' of CPU time' if self.pid else ''}", flush=True)

    def rates(self):
        """Output tokens per second; per second of the engine's CPU time where its process is known."""
        which = 1 if self.pid else 0
        return [(b[2] - a[2]) / (b[which] - a[which]) for a, b in zip(self.marks, self.marks[1:])]


def mixture_of(rng, n):
    """n requests as (prompt tokens, output tokens, output tokens after which the client goes or None)."""
    sizes = [(rng.randint(1, 400), rng.randint(2, 48)) for _ in range(n)]
    cut = set(rng.sample(range(n), n // 5))
    return [(p, o, rng.randrange(o) if i in cut else None) for i, (p, o) in enumerate(sizes)]


async def soak(client, args):
    rng = random.Random(args.seed)
    tenths, n_cut = Tenths(args.requests, args.pid), 0
    # The same sizes and cuts in the same order in every tenth, and other tokens: what is compared is the engine.
    # One more tenth goes before, which finds pages, buffers and weights cold, and the streams that end the last one after.
    mixture = mixture_of(rng, args.requests // 10)
    todo = iter([(i, *mixture[i % len(mixture)]) for i in range(-len(mixture), args.requests + args.streams)])

    async def one(n_prompt, n_output, cut):
        def count(_):
            tenths.tokens += 1
        await stream(client, args, prompt_of(rng, n_prompt), n_output, count, cut_tokens=cut)

    async def worker():
        nonlocal n_cut
        for i, n_prompt, n_output, cut in todo:
            if 0 <= i <= args.requests:
                tenths.start(i)
            n_cut += 0 <= i < args.requests and cut is not None
            await one(n_prompt, n_output, cut)

    await asyncio.gather(*(worker() for _ in range(args.streams)))
    rates = tenths.rates()
    change = 100 * (rates[-1] / rates[0] - 1)
    print(f"last tenth against the first: {change:+.1f} %; cut off by the client: {n_cut} of {args.requests}")
    await asyncio.sleep(1)
    page = (await client.get(args.metrics)).text
    for line in page.splitlines():
        if line.startswith(("vllm:num_requests_", "vllm:kv_cache_usage_perc", "vllm:num_preemptions", "vllm:prefix_cache")):
            print(line)
    if abs(change) > args.within:
        sys.exit(f"more than {args.within} % apart")


async def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["latency", "soak"])
    p.add_argument("--base", required=True)
    p.add_argument("--key", required=True)
    p.add_argument("--metrics", help="address of /metrics (soak)")
    p.add_argument("--model", default="smollm2-135m-instruct")
    p.add_argument("--context", type=int, default=8192)
    p.add_argument("--streams", type=int, default=4)
    p.add_argument("--step-ms", type=float, default=50)
    p.add_argument("--alone-s", type=float, default=5)
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--within", type=float, default=5, help="per cent (soak)")
    p.add_argument("--pid", type=int, help="of `sluice engine` (soak)")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if args.what == "soak" and (not args.metrics or args.requests < 10 or args.requests % 10):
        p.error("soak: --metrics, and requests in tens")
    if urlsplit(args.base).hostname not in ("127.0.0.1", "localhost", "::1"):
        p.error("loopback only")
    async with httpx2.AsyncClient(timeout=1800, limits=httpx2.Limits(max_connections=None)) as client:
        await (latency if args.what == "latency" else soak)(client, args)


asyncio.run(main())
