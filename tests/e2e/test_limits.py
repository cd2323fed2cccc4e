"""Rates, concurrency slots, keys that end."""

import concurrent.futures as futures
import time

import pytest

from conftest import SLOW, wait_for
from test_bad_input import check_error


def test_requests_per_minute(stack):
    key = stack.new_key("rpm", rpm=3)
    answers = [stack.chat(key=key, max_tokens=1) for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    assert [a.headers["x-ratelimit-remaining-requests"] for a in answers[:3]] == ["2", "1", "0"]
    check_error(answers[3], 429, None, "rate_limit_exceeded")
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert 0 < int(answers[3].headers["retry-after-ms"]) <= 20000
    rows = stack.wait_rows(3, "t.name = 'rpm'")
    assert len(rows) == 3


def test_a_refusal_by_one_limit_burns_no_other(stack):
    key = stack.new_key("burn", rpm=100, tpm=60)
    first = stack.chat(key=key, max_tokens=8)
    assert first.status_code == 200
    refused = [stack.chat(key=key, max_tokens=40) for _ in range(5)]
    assert {r.status_code for r in refused} == {429}
    time.sleep(0.2)
    again = stack.chat(key=key, max_tokens=1)
    if again.status_code == 200:
        assert int(again.headers["x-ratelimit-remaining-requests"]) >= 98


def test_more_than_the_bucket_holds_is_never_worth_retrying(stack):
    key = stack.new_key("big", tpm=50)
    r = stack.chat(key=key, max_tokens=500)
    check_error(r, 429)
    assert r.headers["x-should-retry"] == "false"


def test_unused_reservation_returns(stack):
    key = stack.new_key("settle", tpm=2000)
    for _ in range(6):
        r = stack.chat(key=key, max_tokens=900, stop=["a", "e", "i", "o"])
        assert r.status_code == 200, r.text
        used = r.json()["usage"]["total_tokens"]
        assert used < 200
        time.sleep(0.1)


def test_concurrency(stack):
    key = stack.new_key("conc", concurrency=2)
    with futures.ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(stack.chat, "Write a long story.", key, max_tokens=60, ignore_eos=True) for _ in range(6)]
        codes = sorted(j.result().status_code for j in jobs)
    assert codes.count(200) >= 2 and 429 in codes
    wait_for("slots to return", lambda: stack.chat(key=key, max_tokens=1).status_code == 200, 5)


def test_tenants_do_not_share_a_bucket(stack):
    a, b = stack.new_key("alone-a", tenant_rpm=2), stack.new_key("alone-b", tenant_rpm=2)
    assert [stack.chat(key=a, max_tokens=1).status_code for _ in range(3)] == [200, 200, 429]
    assert stack.chat(key=b, max_tokens=1).status_code == 200


def test_a_disabled_key_stops_within_a_second(stack):
    key = stack.new_key("gone")
    assert stack.chat(key=key, max_tokens=1).status_code == 200
    stack.cli("key", "disable", "--config", str(stack.config), key.split("-")[2])
    time.sleep(1.0)
    check_error(stack.chat(key=key, max_tokens=1), 401, None, "invalid_api_key")
    stack.cli("key", "enable", "--config", str(stack.config), key.split("-")[2])
    wait_for("the key works again", lambda: stack.chat(key=key, max_tokens=1).status_code == 200, 3 * SLOW)


def test_an_expired_key_is_refused(stack):
    key = stack.new_key("old")
    stack.cli("key", "expire", "--config", str(stack.config), key.split("-")[2])
    time.sleep(1.0)
    check_error(stack.chat(key=key, max_tokens=1), 401, None, "invalid_api_key")


def test_the_list_never_shows_a_secret(stack):
    key = stack.new_key("list")
    text = stack.cli("key", "list", "--config", str(stack.config)).stdout
    listed = stack.cli("key", "list", "--config", str(stack.config), "--json").stdout
    public = key.split("-")[2]
    secret = key.split("-")[3]
    for t in (text, listed):
        assert public in t and secret[:8] not in t
    with stack.database() as db:
        dump = str(db.execute("SELECT * FROM api_keys").fetchall())
    assert secret[:8] not in dump
