"""Each usage row equals what its client saw, and every report is their exact sum."""

import concurrent.futures as futures
import csv
import io
import json
import os
import subprocess
import time

import httpx2
import openai
import pytest

from conftest import MODEL_ID, SANITIZED, SLOW, wait_for

N = 64
ALONE = range(0, N, 7 if SANITIZED else 3)  # odd and even ones: sampled and greedy
TOPICS = ["rain", "bread", "chess", "rivers", "stars", "music", "bees", "paper"]


def prompt(i):
    return f"Tell me fact number {i} about {TOPICS[i % len(TOPICS)]}."


def one(sdk, i, streamed):
    args = dict(model=MODEL_ID, messages=[{"role": "user", "content": prompt(i)}], max_tokens=40, seed=i,
                temperature=0.8 if i % 2 else 0, extra_headers={"x-client-request-id": f"load-{i}"})
    if not streamed:
        r = sdk.chat.completions.create(**args)
        return r.choices[0].message.content, r.usage, r.id
    text, usage, rid = "", None, None
    for c in sdk.chat.completions.create(**args, stream=True, stream_options={"include_usage": True}):
        rid = c.id
        text += (c.choices[0].delta.content or "") if c.choices else ""
        usage = c.usage or usage
    return text, usage, rid


def test_64_concurrent_streams(stack):
    key = stack.new_key("load")
    # One for all, since making one takes longer than a short answer: they are to be there together.
    sdk = openai.OpenAI(api_key=key, base_url=stack.base + "/v1", max_retries=0, timeout=300 * SLOW)
    alone = [one(sdk, i, False)[0] for i in ALONE]
    with futures.ThreadPoolExecutor(N) as pool:
        together = [f.result() for f in [pool.submit(one, sdk, i, True) for i in range(N)]]
    texts = [t for t, _, _ in together]
    for j, i in enumerate(ALONE):
        assert texts[i] == alone[j], f"request {i} answers otherwise in a full batch"
    # A step's time bounds its rows: where other programs take the cores there are fewer.
    assert stack.metric("sluice_engine_rows_max") >= 16

    rows = stack.wait_rows(len(alone) + N, "t.name = 'load'")
    assert len(rows) == len(alone) + N
    by_id = {str(r["id"]).replace("-", ""): r for r in rows}
    assert len(by_id) == len(rows)
    for _, usage, rid in together:
        row = by_id[rid.removeprefix("chatcmpl-")]
        assert (row["prompt_tokens"], row["output_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
        assert row["outcome"] == "completed"

    # the tenant's page, the administrator's CSV and the rows are one sum
    r = httpx2.get(stack.base + "/v1/organization/usage/completions",
                   params={"start_time": int(time.time()) - 3600, "bucket_width": "1h"},
                   headers={"authorization": f"Bearer {key}"})
    assert r.status_code == 200
    results = [x for b in r.json()["data"] for x in b["results"]]
    assert sum(x["input_tokens"] for x in results) == sum(r["prompt_tokens"] for r in rows)
    assert sum(x["output_tokens"] for x in results) == sum(r["output_tokens"] for r in rows)
    assert sum(x["num_model_requests"] for x in results) == len(rows)
    table = list(csv.DictReader(io.StringIO(stack.cli(
        "usage", "--config", str(stack.config), "--tenant", "load", "--format", "csv").stdout)))
    assert len(table) == len(rows)
    assert sum(int(x["output_tokens"]) for x in table) == sum(r["output_tokens"] for r in rows)
    assert sum(int(x["cost_nanos"]) for x in table) == sum(r["cost_nanos"] for r in rows)


def test_a_row_costs_what_the_price_says(stack):
    key = stack.new_key("price")
    usage = stack.chat(key=key, max_tokens=5).json()["usage"]
    row = stack.wait_rows(1, "t.name = 'price'")[0]
    with stack.database() as db:
        p = db.execute("SELECT input_nanos, output_nanos, request_nanos FROM prices WHERE id = %s", [row["price_id"]]).fetchone()
    numerator = usage["prompt_tokens"] * p[0] + usage["completion_tokens"] * p[1]
    assert row["cost_nanos"] == (numerator + 500_000) // 1_000_000 + p[2]
    assert row["cost_nanos"] > 0


def test_usage_is_visible_within_3_seconds_and_only_to_its_tenant(stack):
    mine, other = stack.new_key("see-a"), stack.new_key("see-b")
    ask = {"start_time": int(time.time()) - 60}

    def total(key):
        r = httpx2.get(stack.base + "/v1/organization/usage/completions", params=ask,
                       headers={"authorization": f"Bearer {key}"})
        return sum(x["input_tokens"] for b in r.json()["data"] for x in b["results"])

    used = stack.chat(key=mine, max_tokens=1).json()["usage"]["prompt_tokens"]
    wait_for("usage", lambda: total(mine) == used, 3 * SLOW)
    assert total(other) == 0


def test_jsonl_report(stack):
    key = stack.new_key("jsonl")
    stack.chat(key=key, max_tokens=2)
    stack.wait_rows(1, "t.name = 'jsonl'")
    out = stack.cli("usage", "--config", str(stack.config), "--tenant", "jsonl", "--format", "jsonl").stdout
    assert [json.loads(line)["tenant"] for line in out.splitlines()] == ["jsonl"]


def test_no_secret_prompt_or_completion_in_a_log(stack):
    key = stack.new_key("quiet")
    word = "zanzibarquux"
    text = stack.chat(f"Repeat after me: {word} {word} {word}", key=key, max_tokens=20).json()["choices"][0]["message"]["content"]
    stack.post("/v1/chat/completions", {"model": MODEL_ID, "messages": [{"role": word, "content": word}]}, key)
    logs = "".join(p.read_text(errors="replace") for p in stack.dir.rglob("*.log")) + stack.text()
    assert "request.end" in logs
    assert word not in logs
    assert key.split("-")[3] not in logs
    assert len(text) < 8 or text not in logs


def test_a_report_into_a_device_leaves_it_there(stack, tmp_path):
    """A link to one here: what is renamed over is gone."""
    sink, pipe = tmp_path / "sink", tmp_path / "pipe"
    sink.symlink_to("/dev/null")
    stack.cli("usage", "--config", str(stack.config), "--out", str(sink))
    assert sink.is_symlink() and sink.is_char_device()
    os.mkfifo(pipe)
    with (tmp_path / "read").open("w+") as read:  # no pipe: a long report would fill it
        with subprocess.Popen(["cat", str(pipe)], stdout=read):
            stack.cli("usage", "--config", str(stack.config), "--out", str(pipe))
        read.seek(0)
        assert read.read().startswith("request_id,")
    full = stack.cli("usage", "--config", str(stack.config), "--out", "/dev/full", check=False)
    assert full.returncode == 1 and "can't be written" in full.stderr


def test_a_day_that_is_none_is_refused(stack):
    done = stack.cli("usage", "--config", str(stack.config), "--start", "2025-02-31", check=False)
    assert done.returncode == 2 and "is not a time" in done.stderr


def test_a_row_that_postgres_refuses_is_kept_and_posted_later(own_stack):
    stack = own_stack.start()
    key = stack.new_key("poison")
    with stack.database() as db:
        db.execute("ALTER TABLE usage_events ADD CONSTRAINT ours CHECK (client_request_id <> 'p-1') NOT VALID")
    for i in range(3):
        body = {"model": MODEL_ID, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2}
        r = stack.post("/v1/chat/completions", body, key, headers={"x-client-request-id": f"p-{i}"})
        assert r.status_code == 200
    assert {r["client_request_id"] for r in stack.wait_rows(2, "t.name = 'poison'")} == {"p-0", "p-2"}
    wait_for("its count", lambda: stack.metric("sluice_usage_dead_letters_total") == 1, 5 * SLOW)
    config = ["--config", str(stack.config)]
    assert "rows refused by Postgres, set aside: 1" in stack.cli("usage", *config, "--summary").stderr
    letter = json.loads(stack.cli("usage", *config, "--dead-letters").stdout)
    assert json.loads(letter["row"])["client_request_id"] == "p-1" and "ours" in letter["reason"]
    assert f"billing.dead_letter request=req_{letter['request_id']}" in (stack.dir / "log/gateway.log").read_text()
    assert stack.cli("usage", *config, "--retry-dead-letters", check=False).returncode == 1
    with stack.database() as db:
        db.execute("ALTER TABLE usage_events DROP CONSTRAINT ours")
    assert stack.cli("usage", *config, "--retry-dead-letters").stdout == "posted 1, refused again 0\n"
    assert stack.cli("usage", *config, "--retry-dead-letters").stdout == "posted 0, refused again 0\n"
    assert sorted(r["client_request_id"] for r in stack.rows("t.name = 'poison'")) == ["p-0", "p-1", "p-2"]
    assert stack.cli("usage", *config, "--dead-letters").stdout == ""
