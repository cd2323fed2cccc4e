#!/usr/bin/env python3
"""What a mixed load does to those who share the engine, loopback only.

    .venv/bin/python bench/mixed.py latency --base http://127.0.0.1:8080/v1 --key "$(cat var/demo.key)" --step-ms 50
    .venv/bin/python bench/mixed.py soak --base http://127.0.0.1:8080/v1 --key "$(cat var/demo.key)" --requests 1000

latency: streams decode; a prompt of nearly the full context is prefilled beside them; short requests come one after
another meanwhile. Prints the short ones' time to first token against the step budget, and the streams' time between
tokens while the prefill ran.

soak: requests of random lengths, a fifth of them cut off by the client at a random moment. Prints output tokens per
second of each tenth of them, and what /metrics says once all have gone.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from urllib.parse import urlsplit

import httpx2

from load import percentile

FILLER = range(1000, 30000)  # ordinary tokens of the demo model's vocabulary


def prompt_of(rng, n):
    """n token ids that no earlier prompt began with: nothing of it is in the prefix cache."""
    return [rng.choice(FILLER) for _ in range(n)]


async def stream(client, args, prompt, max_tokens, on_token=None, cut_after=None):
    """One streamed completion. Returns (time to first token, tokens) in seconds; calls on_token(now) at each event
    with text. cut_after: seconds until the client goes away."""
    body = {"model": args.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}
    start, first, tokens = time.perf_counter(), None, 0
    async with client.stream("POST", args.base + "/completions", json=body,
                             headers={"authorization": f"Bearer {args.key}"}) as r:
        if r.status_code != 200:
            raise RuntimeError(f"{r.status_code}: {(await r.aread()).decode()}")
        async for line in r.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event, now = json.loads(line[6:]), time.perf_counter()
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if event["choices"]:
                first = first or now - start
                if on_token:
                    on_token(now)
            if cut_after is not None and now - start > cut_after:
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


async def soak(client, args):
    rng = random.Random(args.seed)
    gate, tenths, done = asyncio.Semaphore(args.streams), [], 0
    state = {"tokens": 0, "cut": 0, "last": time.perf_counter()}

    async def one(n_prompt, n_output, cut):
        nonlocal done
        async with gate:
            def count(_):
                state["tokens"] += 1
            try:
                await stream(client, args, prompt_of(rng, n_prompt), n_output, count, cut)
            finally:
                done += 1
                state["cut"] += cut is not None
                if done % (args.requests // 10) == 0:
                    now = time.perf_counter()
                    tenths.append(state["tokens"] / (now - state["last"]))
                    print(f"{done} requests: {tenths[-1]:.1f} output tokens/s", flush=True)
                    state.update(tokens=0, last=now)

    # Each tenth has the same mixture, in another order: what is compared is the engine.
    mixture = [(rng.randint(1, 400), rng.randint(1, 48), rng.uniform(0, 3) if rng.random() < 0.2 else None)
               for _ in range(args.requests // 10)]
    for _ in range(10):
        rng.shuffle(mixture)
        await asyncio.gather(*(one(*m) for m in mixture))
    print(f"last tenth against the first: {100 * (tenths[-1] / tenths[0] - 1):+.1f} %; cut off by the client: {state['cut']}")
    await asyncio.sleep(1)
    page = (await client.get(args.metrics)).text
    for line in page.splitlines():
        if line.startswith(("vllm:num_requests_", "vllm:kv_cache_usage_perc", "vllm:num_preemptions", "vllm:prefix_cache")):
            print(line)


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
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if urlsplit(args.base).hostname not in ("127.0.0.1", "localhost", "::1"):
        p.error("loopback only")
    async with httpx2.AsyncClient(timeout=1800, limits=httpx2.Limits(max_connections=None)) as client:
        await (latency if args.what == "latency" else soak)(client, args)


asyncio.run(main())
