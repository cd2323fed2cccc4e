"""Several models in one gateway, each by an engine of its own: routed by id and alias, and one's death is its own."""

import concurrent.futures as futures
import os
import shutil
import subprocess
import sys
import time

import httpx2
import openai
import pytest

from conftest import BIN, MODEL, MODEL_ID, ROOT, SLOW, Several, scratch, sse_events, wait_for

LIMITS = {"rpm": 100000, "tpm": 100000000, "concurrency": 100}


@pytest.fixture(scope="module")
def several(stack):
    """The demo model, and one block of it: nonsense, but quick, with the same long context."""
    base = scratch("several")
    subprocess.run([sys.executable, str(ROOT / "tools/shallow_gguf.py"), str(MODEL), str(base / "shallow.gguf"), "1"], check=True)
    s = Several(stack, base / "var", [
        {"path": str(MODEL), "id": MODEL_ID, "aliases": ["chat", "latest"], "threads": 1, "kv_mb": 256},
        {"path": str(base / "shallow.gguf"), "id": "test/shallow", "aliases": ["quick"], "threads": 1, "kv_mb": 256}])
    try:
        yield s.start()
    finally:
        s.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


def sdk(several, key):
    return openai.OpenAI(api_key=key, base_url=several.base + "/v1", max_retries=0, timeout=120 * SLOW)


def test_every_name_is_listed_and_found(several):
    names = [m["id"] for m in several.get("/v1/models").json()["data"]]
    assert names == [MODEL_ID, "chat", "latest", "test/shallow", "quick"]
    for name in names:
        m = several.get(f"/v1/models/{name}")
        assert m.status_code == 200 and m.json()["id"] == name
    for name in ("shallow", "test", "CHAT", "nothing"):
        assert several.get(f"/v1/models/{name}").status_code == 404
        assert several.chat(model=name).status_code == 404


def test_requests_go_to_the_model_that_they_name(several):
    """At one time, by id and by alias: the same request to the same model gives the same text, and rows name the id."""
    key = several.new_key("names", **LIMITS)
    client = sdk(several, key)

    def ask(name):
        r = client.chat.completions.create(model=name, messages=[{"role": "user", "content": "Name three colours."}],
                                           max_tokens=12, temperature=0.8, seed=7)
        return r.model, r.choices[0].message.content, r.usage

    names = [MODEL_ID, "quick", "chat", "test/shallow", "latest", "quick", "chat", "test/shallow"]
    with futures.ThreadPoolExecutor(len(names)) as pool:
        answers = dict(zip(enumerate(names), pool.map(ask, names)))
    texts = {}
    for (_, name), (model, text, usage) in answers.items():
        assert model == ("test/shallow" if name in ("quick", "test/shallow") else MODEL_ID)
        assert texts.setdefault(model, text) == text, name
    assert texts[MODEL_ID] != texts["test/shallow"]
    rows = several.wait_rows(len(names), "t.name = 'names'")
    assert sorted(r["model"] for r in rows) == sorted([MODEL_ID] * 4 + ["test/shallow"] * 4)
    for model in texts:
        assert sum(r["output_tokens"] for r in rows if r["model"] == model) == \
            sum(usage.completion_tokens for m, _, usage in answers.values() if m == model)


def stream(several, key, model, n, seed, seen=None):
    """The events of a long streamed answer, the time of each."""
    events = []
    with httpx2.Client(timeout=120 * SLOW) as c, c.stream(
            "POST", several.base + "/v1/chat/completions", headers={"authorization": f"Bearer {key}"},
            json={"model": model, "messages": [{"role": "user", "content": f"Tell me story {seed}."}], "max_tokens": n,
                  "temperature": 0.8, "seed": seed, "ignore_eos": True, "stream": True}) as r:
        assert r.status_code == 200
        text = ""
        for part in r.iter_text():
            text += part
            if seen is not None and '"content"' in part:
                seen.append(time.monotonic())
    events = sse_events(text)
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]" and "choices" in e), events


def test_a_killed_engine_takes_nothing_else_along(several):
    key, n, streams = several.new_key("killed", **LIMITS), 60, 3
    wanted = [stream(several, key, MODEL_ID, n, i)[0] for i in range(streams)]
    with futures.ThreadPoolExecutor(streams + 1) as pool:
        seen, doomed_seen = [], []
        others = [pool.submit(stream, several, key, "chat", n, i, seen) for i in range(streams)]
        doomed = pool.submit(stream, several, key, "quick", 6000, 0, doomed_seen)
        wait_for("all streams", lambda: doomed_seen and len(seen) >= streams, 30 * SLOW)
        assert not doomed.done() and not any(o.done() for o in others)
        several.kill_engine("test/shallow")
        killed = time.monotonic()

        def refused():
            r = several.chat(key=key, model="quick")
            return r if r.status_code == 503 else None

        r = wait_for("a 503", refused, 2 * SLOW)
        assert int(r.headers["retry-after"]) >= 1 and r.json()["error"]["code"]
        _, events = doomed.result(2 * SLOW)
        assert "error" in events[-1], "the stream must end with an error"
        assert time.monotonic() - killed < 2 * SLOW
        several.wait_model("test/shallow", there=False)
        assert several.is_ready() and several.parts()["models"][MODEL_ID]
        assert several.chat(key=key, model="latest").status_code == 200
        assert [o.result()[0] for o in others] == wanted
    rows = several.wait_rows(2 * streams + 2, "t.name = 'killed'")
    assert [r["model"] for r in rows if r["outcome"] != "completed"] == ["test/shallow"]
    several.start_engine("test/shallow")
    several.wait_model("test/shallow")
    assert several.chat(key=key, model="quick").status_code == 200


def test_an_engine_that_comes_back_with_another_file_is_served(several):
    """The gateway reads the new file by itself; requests for the other model see nothing of it."""
    key, path = several.new_key("reread", **LIMITS), several.models[1]["path"]
    before = several.chat(key=key, model="quick").json()
    subprocess.run([sys.executable, str(ROOT / "tools/shallow_gguf.py"), str(MODEL), path + ".new", "2"], check=True)
    wanted = stream(several, key, MODEL_ID, 60, 9)[0]
    with futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(stream, several, key, MODEL_ID, 60, 9)
        several.models[1]["path"] = path + ".new"
        several.write_config()
        several.kill_engine("test/shallow")
        several.wait_model("test/shallow", there=False)
        several.start_engine("test/shallow")
        several.wait_model("test/shallow")
        assert other.result()[0] == wanted
    after = several.chat(key=key, model="quick").json()
    assert after["system_fingerprint"] != before["system_fingerprint"]
    assert several.chat(key=key, model=MODEL_ID).status_code == 200


def test_metrics_by_model_are_the_rows(several):
    key, names = several.new_key("summed", **LIMITS), {MODEL_ID: ("chat", MODEL_ID), "test/shallow": ("quick",)}
    before = several.metrics()
    for i in range(3):
        for aliases in names.values():
            for name in aliases:
                assert several.chat(f"Fact {i}, please.", key, model=name, max_tokens=5 + i).status_code == 200
    rows = several.wait_rows(9, "t.name = 'summed'")

    def settled():
        now = several.metrics()
        return now if sum(now[k] - before[k] for k in now if k.startswith("vllm:request_success_total")) == 9 else None

    after = wait_for("nine ends", settled, 10 * SLOW)
    for model in names:
        labels = f'{{model_name="{model}",engine="0"}}'
        mine = [r for r in rows if r["model"] == model]
        assert len(mine) == 3 * len(names[model])
        for metric, column in (("prompt_tokens_total", "prompt_tokens"), ("generation_tokens_total", "output_tokens")):
            series = f"vllm:{metric}{labels}"
            assert after[series] - before[series] == sum(r[column] for r in mine), series
        count = f"vllm:e2e_request_latency_seconds_count{labels}"
        assert after[count] - before[count] == len(mine)
        assert after[f"sluice_engine_up{labels}"] == 1
    pages = [after[f'sluice_engine_kv_pages{{model_name="{m}",engine="0"}}'] for m in names]
    assert len([k for k in after if k.startswith("vllm:num_requests_running")]) == 1
    info, = [k for k in after if k.startswith("vllm:cache_config_info")]
    assert f'num_gpu_blocks="{int(sum(pages))}"' in info


def test_the_engine_must_be_told_which_model(several):
    def engine(*args):
        done = subprocess.run([str(BIN), "engine", "--config", str(several.config), *args], capture_output=True, text=True,
                              timeout=30 * SLOW)
        return done.returncode, done.stderr

    for args in ((), ("--model-id", "nothing")):
        rc, err = engine(*args)
        assert rc == 2 and f"{MODEL_ID}, test/shallow" in err and len(err.splitlines()) == 1
    rc, err = engine("--model-id", "quick")  # its engine runs
    assert rc == 1 and "engine.test-shallow.sock is in use" in err


def test_memory_is_planned_before_anything_loads(several):
    table = several.cli("check-config", "--memory", str(several.config)).stdout
    lines = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    assert lines[MODEL_ID][2] == lines["test/shallow"][2] == "256"
    assert int(lines[MODEL_ID][4]) > 0  # its engine runs: what it has taken is not needed again
    path = several.dir / "large.yaml"
    path.write_text(several.config.read_text().replace('"kv_mb": 256', '"kv_mb": 1048576', 1)
                    .replace(str(several.dir), str(several.dir / "elsewhere")))
    done = several.cli("check-config", "--memory", str(path), check=False)
    assert done.returncode == 1 and "not enough memory for 2 models: weights" in done.stderr
    done = several.cli("engine", "--config", str(path), "--model-id", "chat", check=False)
    assert done.returncode == 1 and f"not enough memory for model {MODEL_ID}: weights" in done.stderr
    assert "KV 1048576 + " in done.stderr and "MiB are available" in done.stderr


def mapped(pid, path):
    """Kilobytes of a process's mappings of a file: resident, and its proportional share of them."""
    rss = pss = 0
    inside = False
    for line in open(f"/proc/{pid}/smaps"):
        if "-" in line.split()[0]:
            inside = line.rstrip().endswith(str(path))
        elif inside and line.startswith("Rss:"):
            rss += int(line.split()[1])
        elif inside and line.startswith("Pss:"):
            pss += int(line.split()[1])
    return rss, pss


def test_engines_of_one_file_share_its_pages(stack):
    """In mode exact, where weights are read in place; on a copy, so that nobody else maps it."""
    base = scratch("shared")
    shutil.copy(MODEL, base / "m.gguf")
    s = Several(stack, base / "var", [{"path": str(base / "m.gguf"), "id": i, "mode": "exact", "threads": 1, "context_tokens": 1024}
                                      for i in ("x", "y")])
    try:
        s.start()
        for i in ("x", "y"):
            assert s.chat(model=i, max_tokens=2).status_code == 200
        for i in ("x", "y"):
            rss, pss = mapped(s.engines[i].pid, base / "m.gguf")
            assert rss * 1024 > 0.8 * MODEL.stat().st_size
            assert pss < 0.6 * rss, "two processes, one copy"
    finally:
        s.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


def test_a_damaged_file_takes_only_its_own_model_along(stack):
    """From the gateway's start on; once it is mended the model is served, without a restart."""
    base = scratch("damaged")
    path = base / "late.gguf"
    path.write_bytes(MODEL.read_bytes()[:4096])
    s = Several(stack, base / "var", [{"path": str(MODEL), "id": MODEL_ID, "threads": 1, "kv_mb": 256},
                                      {"path": str(path), "id": "test/late", "aliases": ["late"], "threads": 1, "kv_mb": 256}])
    try:
        s.start(wait=False)
        s.wait_ready()
        assert s.parts()["models"] == {MODEL_ID: True, "test/late": False}
        reason = s.parts()["reason"]
        assert reason.startswith("engine test/late: ") and "tensors" in reason
        assert s.chat(max_tokens=2).status_code == 200
        for name in ("test/late", "late"):
            r = s.chat(model=name)
            assert r.status_code == 503 and int(r.headers["retry-after"]) >= 1, r.text
            assert s.get(f"/v1/models/{name}").json()["created"] == 0
        assert [m["id"] for m in s.get("/v1/models").json()["data"]] == [MODEL_ID, "test/late", "late"]
        done = s.cli("status", "--config", str(s.config))
        assert f"missing: test/late; {reason}\n" in done.stdout
        up = 'sluice_engine_up{model_name="%s",engine="0"}'
        assert s.metrics()[up % MODEL_ID] == 1 and s.metrics()[up % "test/late"] == 0
        subprocess.run([sys.executable, str(ROOT / "tools/shallow_gguf.py"), str(MODEL), str(base / "new"), "1"], check=True)
        (base / "new").rename(path)
        s.start_engine("test/late")
        s.wait_model("test/late")
        r = s.chat(model="late", max_tokens=2)
        assert r.status_code == 200 and r.json()["model"] == "test/late"
        assert s.get("/v1/models/late").json()["created"] == int(path.stat().st_mtime)
        assert "reason" not in s.parts()
    finally:
        s.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)
