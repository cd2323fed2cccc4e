#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/engine: what gateways do, in the operations of fuzz_engine.c. Run from the root; the output
is the same each time."""

import os

CORPUS = "tests/fuzz/corpus/engine"
HELLO, SUBMIT, DAMAGED, CANCEL, CREDIT, BYTES, TURN, LEAVE, CLAIM, RELEASE, MONITOR, HANDOVER, WAKE = range(13)
OTHER = 0x80  # the second gateway
READ = 0x40   # a turn after which the gateway reads
GOOD = 0x40   # a claim or release of the gateway that keeps to the protocol
AWAY = 0x40   # of MONITOR: somebody who then asks for what watchers may not; of WAKE and HANDOVER: after HELLO


def submit(job, tenant=0, priority=1, max_tokens=6, choices=1, bits=1, sampling=(0, 0, 1), prompt=9, op=SUBMIT, damage=()):
    """bits: 1 ignore_eos, 2 a stop string, 4 a queue bound, 8 max_tokens in millions. prompt: tokens."""
    ids = [7] * (prompt // 8)
    return bytes([op, *damage, job, tenant, 0, priority, max_tokens, choices, bits, *sampling, prompt - 1, *ids])


def turns(n, op=TURN | READ):
    return bytes([op, n - 1])


def requests(op, *numbers):
    """Submits are numbered from 0."""
    return bytes([op, len(numbers) - 1, *numbers])


SEEDS = {
    "one-job": bytes([HELLO]) + submit(1) + turns(12),
    "without-hello": submit(1) + turns(4),
    "hello-twice": bytes([HELLO, HELLO]) + turns(2),
    "two-tenants": bytes([HELLO]) + b"".join(submit(i, tenant=i % 3, prompt=40) for i in range(6)) + turns(16),
    "choices-with-logprobs": bytes([HELLO]) + submit(2, choices=4, sampling=(15, 0, 3, 20), prompt=20) + turns(16),
    "same-job-twice": bytes([HELLO]) + submit(1) + submit(1) + turns(8),
    "cancelled": bytes([HELLO]) + submit(1, max_tokens=200) + turns(4) + bytes([CANCEL, 1]) + turns(4),
    "cancel-of-nothing": bytes([HELLO, CANCEL, 7]) + turns(2),
    "queue-full": bytes([HELLO, OTHER | HELLO]) + b"".join(submit(i % 8, tenant=1, max_tokens=250, op=SUBMIT | (OTHER if i > 7 else 0))
                                                           for i in range(16)) + turns(16),
    "never-reads": bytes([HELLO]) + submit(1, max_tokens=255, choices=8, sampling=(15, 0, 3, 20)) + turns(16, TURN) * 4,
    "too-much-credit": bytes([HELLO]) + submit(1) + turns(4) + bytes([CREDIT, 255]) + turns(4),
    "leaves-in-the-middle": bytes([HELLO]) + submit(1, max_tokens=200) + turns(6) + bytes([LEAVE, HELLO]) + submit(1) + turns(8),
    "damaged": bytes([HELLO]) + submit(1, op=DAMAGED, damage=(30, 0, 0x80)) + turns(4),
    "longest-frame": bytes([HELLO, BYTES, 6, 0, 0, 0, 1, 4, 0]) + turns(2),
    "handed-over": bytes([OTHER | HELLO, HELLO, BYTES, 12, 2, 0, 0, 0, 10, 0, 2, 0, 0, 0, 14, 0]) + turns(2)
    + submit(1, op=OTHER | SUBMIT) + turns(8) + bytes([LEAVE, HELLO]) + turns(2),
    "classes": bytes([HELLO]) + b"".join(submit(i, priority=i % 3, bits=5) for i in range(8)) + turns(16),
    "no-output": bytes([HELLO]) + submit(3, max_tokens=0, sampling=(8, 0, 1)) + turns(4),
    "claimed-while-it-runs": bytes([HELLO]) + submit(1, max_tokens=200) + turns(4) + requests(CLAIM | GOOD, 0, 9)
    + bytes([LEAVE]) + turns(4),
    "claimed-after-its-end": bytes([HELLO]) + submit(1) + turns(12) + requests(CLAIM | GOOD, 0) + requests(RELEASE | GOOD, 0)
    + requests(CLAIM | GOOD, 0) + turns(2),
    "claimed-by-two": bytes([HELLO, OTHER | HELLO]) + submit(1, max_tokens=200) + turns(2) + requests(CLAIM | GOOD, 0)
    + requests(CLAIM | OTHER, 0) + turns(2) + requests(CLAIM | GOOD, 0) + bytes([OTHER | LEAVE, LEAVE]) + turns(4),
    "claims-its-own": bytes([HELLO]) + submit(1, max_tokens=200) + requests(CLAIM, 0, 0) + turns(4) + bytes([LEAVE]) + turns(2),
    "released-while-it-runs": bytes([HELLO]) + submit(1) + turns(2) + requests(RELEASE | GOOD, 0) + requests(RELEASE, 0)
    + turns(12) + requests(CLAIM | GOOD, 0) + turns(2),
    "claims-without-hello": requests(CLAIM, 0) + turns(2),
    "watches": bytes([HELLO, MONITOR]) + turns(4) + submit(1) + turns(4),
    # In the order of fuzz_engine.c's list.
    "watchers-who-ask": b"".join(bytes([MONITOR | AWAY, which]) + arguments + turns(1) for which, arguments in enumerate(
        (b"", submit(1)[1:], b"\1", b"\1", requests(CLAIM, 0)[1:], requests(RELEASE, 0)[1:], b"", b""))),
    "strangers": bytes([HANDOVER, HANDOVER | AWAY, WAKE, WAKE | AWAY]) + turns(2),
    "longer-than-the-context": bytes([HELLO]) + submit(1, max_tokens=255, bits=9) + turns(8),
}

os.makedirs(CORPUS, exist_ok=True)
for name, data in SEEDS.items():
    with open(os.path.join(CORPUS, name), "wb") as f:
        f.write(data)
