#!/usr/bin/env python3
"""A bounded load of streamed chat completions on one server, loopback only.

    .venv/bin/python bench/load.py --base http://127.0.0.1:8080/v1 --key "$(cat var/demo.key)" --streams 1,8,32,64

For each number of concurrent streams: requests end to end, output tokens per second over all, time to first
token and time between tokens (median, p99), errors. With --url-only the address may be another OpenAI-compatible
server's (a peer beside us in the same run).
"""

import argparse
import asyncio
import json
import statistics
import time
from urllib.parse import urlparse

import httpx2


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p / 100 * len(values)))] if values else float("nan")


async def one(client, args, i, out):
    body = {"model": args.model, "messages": [{"role": "user", "content": f"Write a short story about the number {i}."}],
            "max_tokens": args.tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    if args.ignore_eos:
        body["ignore_eos"] = True
    start = last = time.perf_counter()
    first, gaps, tokens = None, [], 0
    try:
        async with client.stream("POST", args.base + "/chat/completions", json=body,
                                 headers={"authorization": f"Bearer {args.key}"}) as r:
            if r.status_code != 200:
                out["errors"] += 1
                return
            async for line in r.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                now = time.perf_counter()
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
                if event["choices"] and event["choices"][0].get("delta", {}).get("content"):
                    if first is None:
                        first = now - start
                    else:
                        gaps.append(now - last)
                    last = now
    except httpx2.HTTPError:
        out["errors"] += 1
        return
    out["tokens"] += tokens
    out["first"].append(first if first is not None else float("nan"))
    out["gaps"] += gaps


async def run(args, streams):
    out = {"errors": 0, "tokens": 0, "first": [], "gaps": []}
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=600, limits=limits) as client:
        gate = asyncio.Semaphore(streams)

        async def bounded(i):
            async with gate:
                await one(client, args, i, out)

        start = time.perf_counter()
        await asyncio.gather(*(bounded(i) for i in range(max(streams, args.requests))))
        seconds = time.perf_counter() - start
    return {"streams": streams, "seconds": round(seconds, 2), "errors": out["errors"],
            "tokens_per_s": round(out["tokens"] / seconds, 1),
            "ttft_ms_p50": round(1000 * statistics.median(out["first"]), 1) if out["first"] else None,
            "ttft_ms_p99": round(1000 * percentile(out["first"], 99), 1),
            "between_tokens_ms_p50": round(1000 * percentile(out["gaps"], 50), 1),
            "between_tokens_ms_p99": round(1000 * percentile(out["gaps"], 99), 1)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--base", default="http://127.0.0.1:8080/v1")
    p.add_argument("--key", default="none")
    p.add_argument("--model", default="smollm2-135m-instruct")
    p.add_argument("--streams", default="1,8,32,64")
    p.add_argument("--requests", type=int, default=0, help="at least this many requests per row")
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--ignore-eos", action="store_true", help="ours and vLLM's: every answer has the same length")
    args = p.parse_args()
    if urlparse(args.base).hostname not in ("127.0.0.1", "localhost", "::1"):
        p.error("loopback only")
    for n in args.streams.split(","):
        print(json.dumps(asyncio.run(run(args, int(n)))), flush=True)


if __name__ == "__main__":
    main()
