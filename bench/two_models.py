#!/usr/bin/env python3
"""What the clients of one model notice while another model's engine is killed, frozen, starved of memory or poisoned, again
and again. Starts a stack of its own; loopback only.

    .venv/bin/python bench/two_models.py --rounds 3 --seconds 9

Two models under one supervisor, an engine thread each, and clients of both all the time. Periods of --seconds: in every other
one all is well, in those between one thing is done to the first engine as often as it comes back. What counts is the second
model's answers (short, whole, one after the other per client), against those of the period just before. Prints a table for
bench/results. SIGSTOP ends with the watchdog's verdict (engine.stall_ms, here its least: 3 s); out of memory needs a memory
control group that can be made (root); poisoned: the first model's clients ask a third, with a NaN in its weights, whose engine
lives and fails every request.
SLUICE_BIN names the binary.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import time
from pathlib import Path

from load import percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/e2e"))

from conftest import Stack, scratch  # noqa: E402
from faults import POISONED, Clients, is_gone, kill, pair, starved  # noqa: E402
from test_fleet import SHALLOW  # noqa: E402

STALL_MS = 3000
TOKENS = 8  # of each of the second model's answers, at most


def come_back(two, old):
    """Also from a crash loop: this one is ours."""
    two.wait_successor(old)
    two.process.send_signal(signal.SIGHUP)


def wait_until(end, condition):
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return condition()


class Killed:
    name = "SIGKILL"

    def period(self, two, end):
        n = 0
        while time.monotonic() < end:
            pid, n = two.engine_pid(SHALLOW), n + 1
            kill(two, pid)
            come_back(two, pid)
            wait_until(min(end, time.monotonic() + 0.5), lambda: False)
        return n


class Frozen:
    name = "SIGSTOP"

    def period(self, two, end):
        n = 0
        while time.monotonic() < end:
            pid, n = two.engine_pid(SHALLOW), n + 1
            os.kill(pid, signal.SIGSTOP)
            wait_until(time.monotonic() + 30, lambda: is_gone(pid))
            come_back(two, pid)
        return n


class Starved:
    name = "out of memory"

    def period(self, two, end):
        n = 0
        while time.monotonic() < end:
            pid = two.engine_pid(SHALLOW)
            with starved(pid, allowed=256 << 10) as is_possible:
                if not is_possible:
                    sys.exit("no memory control group can be made here: leave it out with --leave-out starved")
                if wait_until(end, lambda: is_gone(pid)):
                    n += 1
                else:
                    kill(two, pid)  # its group has to be empty
            come_back(two, pid)
        return n


class Poisoned:
    name = "NaN in its weights"

    def period(self, two, end):
        """The first model's clients ask the one with the NaN instead, again as soon as they have their error."""
        key, n_clients = self.hit.key, self.hit.n
        self.hit.stop()
        bad = Clients(two, key, POISONED, n_clients, tokens=64, pause_s=0)
        wait_until(end, lambda: False)
        bad.stop()
        self.hit.start()
        return len([a for a in bad.answers if a.status == 500])


FAULTS = {"killed": Killed, "frozen": Frozen, "starved": Starved, "poisoned": Poisoned}


class Bench:
    def __init__(self, two, args):
        self.two, self.args = two, args
        key = two.new_key("bench", rpm=1000000, tpm=100000000, concurrency=1000)
        self.hit = Clients(two, key, "quick", args.clients, tokens=64)
        self.other = Clients(two, key, "chat", args.clients, tokens=TOKENS, sentences=1)
        self.pairs = {name: [] for name in args.faults}  # of each round: (well, meanwhile), in seconds
        self.events = {name: 0 for name in args.faults}
        self.hit.wait_ok(args.clients)
        self.other.wait_ok(args.clients)

    def measure(self, period):
        """The second model's answers that began and ended while `period(end)` ran, in seconds."""
        began = time.monotonic()
        period(began + self.args.seconds)
        done = [a for a in list(self.other.answers) if a.began >= began]
        bad = [a.kind for a in done if a.kind != "ok"]
        if bad:
            sys.exit(f"the second model's clients noticed: {bad[:3]}")
        return [a.seconds for a in done]

    def one_round(self):
        for name in self.args.faults:
            fault = FAULTS[name]()
            fault.hit = self.hit
            well = self.measure(lambda end: wait_until(end, lambda: False))
            happened = []
            ill = self.measure(lambda end: happened.append(fault.period(self.two, end)))
            self.events[name] += happened[0]
            self.pairs[name].append((well, ill))
            print(f"{name}: {happened[0]} times, p99 {ms(well, 99)} -> {ms(ill, 99)} ms of {len(well)}, {len(ill)}",
                  file=sys.stderr, flush=True)

    def stop(self):
        self.hit.stop()
        self.other.stop()

    def print_table(self):
        print("| the first engine | times | answers | p50, ms: before, meanwhile | p99, ms: before, meanwhile | "
              "ratio of p99s: median (each round) |")
        print("|---|---:|---:|---|---|---|")
        for name, pairs in self.pairs.items():
            well, ill = [s for w, _ in pairs for s in w], [s for _, i in pairs for s in i]
            ratios = [percentile(i, 99) / percentile(w, 99) for w, i in pairs]
            print(f"| {FAULTS[name].name} | {self.events[name]} | {len(well)}, {len(ill)} | {ms(well, 50)}, {ms(ill, 50)} | "
                  f"{ms(well, 99)}, {ms(ill, 99)} | {statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)}) |")
        odd = [a.kind for a in self.hit.answers if a.kind not in ("ok", "refused", "broken")]
        print(f"\nThe first model's clients: {self.hit.n_ok()} answers, {len(self.hit.answers) - self.hit.n_ok()} errors, "
              f"{len(odd)} of them not clean. The second's: {self.other.n_ok()} answers, no error.")
        self.print_noise()

    def print_noise(self):
        """What the p99 of one well period is to that of the next."""
        p99s = [percentile(w, 99) for n in range(self.args.rounds) for w, _ in (p[n] for p in self.pairs.values())]
        ratios = sorted(b / a for a, b in zip(p99s, p99s[1:]))
        if ratios:
            print(f"Noise: p99 of a well period to the one before it: {ratios[0]:.2f} to {ratios[-1]:.2f}, "
                  f"median {statistics.median(ratios):.2f} ({len(ratios)} pairs).")


def ms(seconds, p):
    return f"{1000 * percentile(seconds, p):.0f}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=9, help="of a period")
    p.add_argument("--clients", type=int, default=2, help="of each model")
    p.add_argument("--leave-out", default="", help=f"of {', '.join(FAULTS)}")
    args = p.parse_args()
    args.faults = [name for name in FAULTS if name not in args.leave_out.split(",")]
    base = scratch("two-models")
    stack = Stack(base / "var")
    try:
        stack.start()
        with pair(stack, STALL_MS, poisoned=True) as two:
            bench = Bench(two.start(), args)
            try:
                for _ in range(args.rounds):
                    bench.one_round()
            finally:
                bench.stop()
            bench.print_table()
    finally:
        stack.stop()
        shutil.rmtree(base, ignore_errors=True)


main()
