"""Two models under load, and something happens to one of them: its clients have clean errors within 2 s, it comes back (or
says why not), every token is billed by the table, and the other model's clients notice nothing. That their latency stays as
it was is measured by bench/two_models.py."""

import os
import time

import pytest

from conftest import MODEL_ID, SLOW, wait_for
from faults import ERROR_MEMBERS, Clients, check_bill, freeze, kill, pair, poison, starved, truncate, unable_to_allocate, wait_gone
from test_fleet import SHALLOW, Story

STALL_MS = 8000 * SLOW  # on a busy machine even a healthy engine is silent for seconds
CLEAN_S = 2 * SLOW  # from the engine's end to the last of its clients' errors
N = 4  # clients of each model
ENDS_AT_ONCE = {"2": 100}  # the token that ends a turn


@pytest.fixture
def two(stack):
    with pair(stack, STALL_MS) as p:
        yield p.start()


class Trial:
    """Load on both models, and a long request on the one that something is done to, of a key that can't reserve so much twice."""

    def __init__(self, two, tenant):
        self.two, self.tenant = two, tenant
        self.neighbour, self.victim = two.engine_pid(MODEL_ID), two.engine_pid(SHALLOW)
        # As many slots as clients: one that doesn't come back is a 429, which is no clean end here.
        key = two.new_key(tenant, rpm=100000, tpm=100000000, concurrency=2 * N)
        self.hit, self.other = Clients(two, key, "quick", N), Clients(two, key, "chat", N)
        self.saver = two.new_key(f"{tenant}-saver", rpm=1000, tpm=7000, concurrency=1)

    def begin(self, long_tokens=6000):
        self.hit.wait_ok(2 * N)
        self.other.wait_ok(N)
        self.long = Story(self.two, self.saver, "quick", long_tokens)
        wait_for("a long stream", self.long.has_begun, 30 * SLOW)
        self.since = time.monotonic()

    def happened(self, at):
        """The engine is gone since then: who waited for it has an error, in time."""
        wait_for("the end of all who waited", lambda: not any(a.began < at for a in list(self.hit.running.values())), CLEAN_S)
        assert self.long.result()[1] and self.long.ended - at < CLEAN_S
        # A frozen one's end is seen by the gateway itself, at the same limit as the watchdog.
        caught = [a for a in list(self.hit.answers) if a.began < at and a.ended > self.since and a.kind != "ok"]
        assert caught, "nobody noticed"

    def end(self):
        """After all is well again."""
        self.hit.wait_ok(2 * N)
        self.other.wait_ok(N)
        r = self.two.chat(key=self.saver, model="quick", max_tokens=3000, logit_bias=ENDS_AT_ONCE)
        assert r.status_code == 200, f"the long request's reservation is still out: {r.text}"
        self.hit.stop()
        self.other.stop()
        self.check_answers()
        check_bill(self.two, self.tenant, self.hit.answers + self.other.answers)

    def check_answers(self):
        for a in self.hit.answers:
            assert a.kind in ("ok", "broken") or (a.kind == "refused" and a.status == 503), (a.name, a.kind, a.status)
        assert {a.kind for a in self.other.answers} == {"ok"}, "the other model's clients noticed"
        assert self.two.engine_pid(MODEL_ID) == self.neighbour
        assert self.two.status()[1][MODEL_ID]["deaths"] == 0


@pytest.mark.parametrize("inflict", [kill, freeze])
def test_a_dead_or_frozen_engine(two, inflict):
    trial = Trial(two, inflict.__name__)
    trial.begin()
    trial.happened(inflict(two, trial.victim))
    two.wait_successor(trial.victim)
    trial.end()
    assert two.status()[1][SHALLOW]["deaths"] == 1


def test_the_kernel_takes_an_engine_that_needs_too_much(two):
    """Its KV memory grows into what its control group doesn't have."""
    trial = Trial(two, "starved")
    trial.begin()
    with starved(trial.victim) as is_possible:
        if not is_possible:
            trial.hit.stop()
            trial.other.stop()
            pytest.skip("no memory control group can be made here")
        trial.happened(wait_gone(trial.victim, 60))
    two.wait_successor(trial.victim)
    assert two.status()[1][SHALLOW]["deaths"] == 1
    trial.end()


def test_an_engine_whose_allocations_fail_stays(two):
    """What can't be allocated is that request's error and nobody else's: the engine goes on, and takes everything again."""
    trial = Trial(two, "unallocated")
    trial.begin(long_tokens=200)
    key = two.new_key("large", rpm=1000, tpm=100000000, concurrency=1)
    # Two megabytes for its tokens alone, as soon as it is queued.
    large = {"model": "quick", "n": 64, "max_tokens": 8000, "logit_bias": ENDS_AT_ONCE}
    with unable_to_allocate(trial.victim):
        for _ in range(5):
            r = two.chat(key=key, **large)
            assert r.status_code == 503 and set(r.json()["error"]) == ERROR_MEMBERS and int(r.headers["retry-after"]) >= 1
        trial.hit.wait_ok(N)
    assert two.chat(key=key, **large).status_code == 200
    rows = two.wait_rows(1, "t.name = 'large' AND outcome = 'completed'")
    assert all(r["cost_nanos"] == 0 for r in two.rows("t.name = 'large'") if r not in rows)
    assert not trial.long.result()[1]
    trial.end()
    assert {a.kind for a in trial.hit.answers} == {"ok"}
    assert two.engine_pid(SHALLOW) == trial.victim and two.status()[1][SHALLOW]["deaths"] == 0


def wait_given_up(two, reason):
    """The crash loop has stopped, and all who may ask are told why."""
    wait_for("the end of the loop", lambda: two.states()[SHALLOW] == "stopped", 60 * SLOW)
    code, engines = two.status()
    assert code == 0 and "stopped after 5 crashes" in engines[SHALLOW]["reason"] and reason in engines[SHALLOW]["reason"]
    assert reason in two.cli("status", "--config", str(two.config)).stdout
    parts = two.parts()
    assert parts["models"] == {MODEL_ID: True, SHALLOW: False}
    assert reason in parts["reason"]


def come_back(two, trial):
    two.mend_file()
    assert two.model("load", SHALLOW).stdout == f"{SHALLOW} is ready\n"
    two.wait_model(SHALLOW)
    trial.end()


def test_a_file_cut_under_a_running_engine(two):
    """The next page it touches ends it with SIGBUS. The gateway reads nothing from there any more."""
    trial, gateway = Trial(two, "cut"), two.pid_of("gateway")
    trial.begin()
    trial.happened(truncate(two, trial.victim))
    assert "signal 7" in two.text()
    wait_given_up(two, "is empty")
    assert two.pid_of("gateway") == gateway
    come_back(two, trial)


def test_a_file_that_garbage_took_the_place_of(two):
    """The engine that runs keeps the old one; the next is told what is wrong with this."""
    trial = Trial(two, "garbage")
    trial.begin()
    garbage = two.file.parent / "garbage"
    garbage.write_bytes(os.urandom(1 << 20))
    os.rename(garbage, two.file)
    trial.hit.wait_ok(N)
    trial.happened(kill(two, trial.victim))
    wait_given_up(two, "not a GGUF file")
    come_back(two, trial)


def test_weights_that_are_not_finite(stack):
    """Each request fails by itself, free of charge; the engine stays."""
    with pair(stack, STALL_MS) as two:
        poison(two.file.parent / "whole.gguf", two.file)
        two.start()
        victim, neighbour = two.engine_pid(SHALLOW), two.engine_pid(MODEL_ID)
        key = two.new_key("poisoned", rpm=100000, tpm=100000000, concurrency=2 * N)
        hit, other = Clients(two, key, "quick", N), Clients(two, key, "chat", N)
        other.wait_ok(4 * N)
        hit.stop()
        other.stop()
        assert len(hit.answers) > N and {(a.kind, a.status) for a in hit.answers} == {("refused", 500)}
        assert {a.kind for a in other.answers} == {"ok"}
        rows = two.wait_rows(len(hit.answers) + len(other.answers), "t.name = 'poisoned'")
        bad = [r for r in rows if r["model"] == SHALLOW]
        assert {(r["outcome"], r["prompt_tokens"], r["output_tokens"], r["cost_nanos"]) for r in bad} == {("failed", 0, 0, 0)}
        assert len(bad) == len(hit.answers)
        check_bill(two, "poisoned", hit.answers + other.answers)
        series = f'vllm:corrupted_requests_total{{model_name="{SHALLOW}",engine="0"}}'
        wait_for("all counted", lambda: two.metrics()[series] == len(bad), 3 * SLOW)
        assert (two.engine_pid(SHALLOW), two.engine_pid(MODEL_ID)) == (victim, neighbour)
        wait_for("no page in use", lambda: two.metric("vllm:kv_cache_usage_perc") == 0, 3 * SLOW)
