"""Short requests in a row over HTTP/2, a fixed number of them, each judged by itself: what tests/e2e/test_rolling.py puts under
a service that is being changed."""

import asyncio
import contextlib
import itertools
import threading

import httpx2

from conftest import SLOW, sse_events, wait_for

TOKENS_MAX = 8
PROMPTS = 24  # a multiple of TOKENS_MAX, and of what is_streamed asks: a prompt always comes with the same of both
AT_ONCE = 12


def tokens_of(i):
    return 1 + i % TOKENS_MAX


def is_streamed(i):
    return i % 3 == 0


class Rush(threading.Thread):
    """`n` requests by AT_ONCE clients, request i for exactly tokens_of(i) tokens of the text that its prompt has always had;
    a failure is a sentence in `failures`.

    targets: addresses, taken in turn; may be replaced at any time."""

    def __init__(self, name, targets, key, model, n):
        super().__init__(daemon=True)
        self.name_prefix, self.targets, self.key, self.model, self.n = name, targets, key, model, n
        self.todo, self.n_done, self.failures, self.in_flight, self.texts = iter(range(n)), 0, [], set(), {}
        self.start()

    def run(self):
        asyncio.run(self.all())

    async def all(self):
        await asyncio.gather(*(self.client(k) for k in range(AT_ONCE)))

    async def client(self, k):
        """One after the other. A connection ends with the target: one that a gateway closed when it stopped is not used for
        the next gateway at its address."""
        async with contextlib.AsyncExitStack() as open_ones:
            connections = {}
            for turn in itertools.count(k):
                i = next(self.todo, None)
                if i is None:
                    return
                targets = self.targets
                connections = {t: c for t, c in connections.items() if t in targets}
                base = targets[turn % len(targets)]
                if base not in connections:
                    connections[base] = await open_ones.enter_async_context(
                        httpx2.AsyncClient(timeout=60 * SLOW, http1=False, http2=True))
                await self.judged(connections[base], base, i)

    async def judged(self, connection, base, i):
        mark = (base, i)
        self.in_flight.add(mark)
        try:
            await self.one(connection, base, i)
        except httpx2.HTTPError as e:
            self.failures.append(f"{i} at {base}: {type(e).__name__} {e}")
        self.in_flight.remove(mark)
        self.n_done += 1

    async def one(self, client, base, i):
        body = {"model": self.model, "messages": [{"role": "user", "content": f"Number {i % PROMPTS}."}],
                "max_tokens": tokens_of(i), "ignore_eos": True, "temperature": 0}
        if is_streamed(i):
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        r = await client.post(base + "/v1/chat/completions", json=body,
                              headers={"authorization": f"Bearer {self.key}", "x-client-request-id": f"{self.name_prefix}-{i}"})
        wrong = self.what_is_wrong(r, i)
        if wrong:
            self.failures.append(f"{i} at {base}: {wrong}")

    def what_is_wrong(self, r, i):
        if r.status_code != 200:
            return f"{r.status_code} {r.text[:200]}"
        if is_streamed(i):
            events = sse_events(r.text)
            if not events or events[-1] != "[DONE]":
                return f"a stream cut off: {r.text[-200:]}"
            text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e.get("choices"))
            usage = events[-2].get("usage") or {}
        else:
            text, usage = r.json()["choices"][0]["message"]["content"], r.json()["usage"]
        if usage.get("completion_tokens") != tokens_of(i):
            return f"{usage} in place of {tokens_of(i)} tokens"
        first = self.texts.setdefault(i % PROMPTS, text)
        return None if text == first else f"{text!r}, and before {first!r}"

    def wait_done(self, share):
        """Until that share of them has ended."""
        wait_for(f"{share:.0%} of {self.n} requests", lambda: self.n_done >= share * self.n or not self.is_alive(), 900 * SLOW)

    def leave(self, target):
        """No request goes there any more, and none is on its way."""
        self.targets = [t for t in self.targets if t != target]
        wait_for("the last one there", lambda: not any(t == target for t, _ in list(self.in_flight)), 30 * SLOW)

    def check(self, stack, tenant):
        """All came, none failed, and each is one row of as many tokens as its client saw."""
        self.join(900 * SLOW)
        assert not self.is_alive() and self.n_done == self.n
        assert self.failures == [], f"{len(self.failures)} of {self.n}: {self.failures[:5]}"
        where = f"t.name = '{tenant}' AND e.client_request_id LIKE '{self.name_prefix}-%%'"
        rows = stack.wait_rows(self.n, where, seconds=60)
        assert len(rows) == self.n
        assert {(r["client_request_id"], r["outcome"], r["output_tokens"]) for r in rows} == {
            (f"{self.name_prefix}-{i}", "completed", tokens_of(i)) for i in range(self.n)}
