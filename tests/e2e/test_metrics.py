"""/metrics tells the truth: its counters are the usage rows', its gauges the engine's, its times the clients'."""

import concurrent.futures as futures
import json
import re
import time
import uuid
from pathlib import Path

import httpx2

from conftest import MODEL_ID, SLOW, wait_for

LABELS = f'model_name="{MODEL_ID}",engine="0"'
# Several KV pages of one text.
LONG = "The harbour was full of boats that had come in before the storm, and every one of them had a name. " * 4
# One series each, whatever the number of models: what Kubernetes' Gateway API Inference Extension reads.
ROUTER_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                 "vllm:cache_config_info", "vllm:lora_requests_info")


def page(stack):
    r = httpx2.get(f"http://127.0.0.1:{stack.admin_port}/metrics", timeout=10)
    assert r.headers["content-type"].startswith("text/plain; version=0.0.4")
    return r.text


class Delta:
    """How far a model's series went on since this was made."""

    def __init__(self, stack):
        self.stack, self.before = stack, stack.metrics()

    def stop(self):
        self.after = self.stack.metrics()

    def of(self, name, extra=""):
        key = f"{name}{{{LABELS}{extra}}}"
        return self.after[key] - self.before[key]

    def ours(self, series):
        return self.after.get(series, 0) - self.before.get(series, 0)


def body(i, **fields):
    return {"model": MODEL_ID, "messages": [{"role": "user", "content": f"Tell me fact number {i} about rain."}],
            "max_tokens": 12, "seed": i, **fields}


def auth(key):
    return {"authorization": f"Bearer {key}"}


def leave_early(stack, key, i, n_events=4):
    """Streams a long answer and goes after a few events."""
    seen = 0
    with httpx2.Client(timeout=60 * SLOW) as c:
        with c.stream("POST", stack.base + "/v1/chat/completions", headers=auth(key),
                      json=body(i, stream=True, max_tokens=2000, ignore_eos=True)) as r:
            for line in r.iter_lines():
                seen += line.startswith("data: ")
                if seen == n_events:
                    return


def echo_scores(stack, key):
    """The prompt's log-probabilities and no output."""
    return stack.post("/v1/completions", {"model": MODEL_ID, "prompt": LONG, "max_tokens": 0, "echo": True, "logprobs": 2}, key)


def long_prompt(stack, key, i, **fields):
    return stack.post("/v1/chat/completions", body(i, messages=[{"role": "user", "content": LONG}], **fields), key)


def mixed_load(stack, key):
    """22 requests that are billed, four that are refused at once, and as many as the queue refuses. Returns the choices of
    each request that was answered, and how many the queue refused."""
    assert long_prompt(stack, key, 0).status_code == 200
    works = [lambda i=i: stack.post("/v1/chat/completions", body(i), key) for i in range(6)]
    works += [lambda i=i: stack.post("/v1/chat/completions", body(i, stream=True), key) for i in range(6)]
    works += [lambda i=i: long_prompt(stack, key, i, n=4) for i in range(2)]
    works += [lambda: echo_scores(stack, key)]
    works += [lambda i=i: leave_early(stack, key, i) for i in range(4)]
    works += [lambda i=i: stack.post("/v1/chat/completions", body(i, temperature=9), key) for i in range(4)]
    with futures.ThreadPoolExecutor(len(works)) as pool:
        answers = [f.result() for f in [pool.submit(w) for w in works]]
    assert [r.status_code for r in answers if r is not None] == [200] * 15 + [400] * 4
    # a tenant's 256 choices may wait and 64 run: 400 are too many
    with futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(stack.post, "/v1/chat/completions", body(i, n=100, max_tokens=4), key) for i in range(4)]
        crowd = [f.result().status_code for f in jobs]
    assert set(crowd) == {200, 503}
    return [1] * 14 + [4] * 2 + [100] * crowd.count(200), crowd.count(503)


def test_counters_equal_the_sums_of_the_usage_rows(stack):
    key = stack.new_key("counted")
    delta = Delta(stack)
    choices, n_refused = mixed_load(stack, key)
    n = len(choices) + 4 + n_refused  # four left
    rows = stack.wait_rows(n, "t.name = 'counted'", seconds=30)
    delta.stop()
    assert len(rows) == n
    prompt, cached, output = (sum(r[f"{kind}_tokens"] for r in rows) for kind in ("prompt", "cached", "output"))
    assert cached > 0

    assert delta.of("vllm:prompt_tokens_total") == prompt
    assert delta.of("vllm:generation_tokens_total") == output
    assert delta.of("vllm:request_prompt_tokens_sum") == prompt
    assert delta.of("vllm:request_generation_tokens_sum") == output
    for kind, tokens in (("prompt", prompt), ("cached", cached), ("output", output)):
        assert delta.ours(f'sluice_billed_tokens_total{{kind="{kind}"}}') == tokens
    for name in ("request_prompt_tokens", "request_generation_tokens", "e2e_request_latency_seconds"):
        assert delta.of(f"vllm:{name}_count") == len(rows), name
    assert delta.ours('sluice_requests_total{route="/v1/chat/completions",status="400"}') == 4
    assert delta.ours('sluice_requests_total{route="/v1/chat/completions",status="503"}') == n_refused

    ended = {reason: delta.of("vllm:request_success_total", f',finished_reason="{reason}"')
             for reason in ("stop", "length", "abort", "error")}
    assert ended == {"stop": sum(r["finish_reason"] == "stop" for r in rows),
                     "length": sum(r["finish_reason"] == "length" for r in rows),
                     "abort": sum(r["outcome"] == "cancelled" for r in rows),
                     "error": sum(r["outcome"] == "failed" for r in rows)}
    assert ended["abort"] == 4 and ended["error"] == n_refused

    # a token's gap is from its choice's one before it; what a client that left did not get has none
    got = [r for r in rows if r["output_tokens"] > 0]
    gaps = delta.of("vllm:inter_token_latency_seconds_count")
    assert delta.of("vllm:time_to_first_token_seconds_count") == len(got)
    further = sum(c - 1 for c in choices)  # choices after a request's first, whose first tokens have no gap either
    assert sum(r["output_tokens"] - 1 for r in got if r["outcome"] == "completed") - further <= gaps
    assert gaps <= output - len(got) - further


def test_each_choice_looks_its_prompt_up_and_scores_do_not(stack):
    key, delta = stack.new_key("looked-up"), Delta(stack)
    answers = [long_prompt(stack, key, 0), long_prompt(stack, key, 1), long_prompt(stack, key, 2, n=4), echo_scores(stack, key)]
    assert [r.status_code for r in answers] == [200] * 4
    usages = [r.json()["usage"] for r in answers]
    prompt = usages[0]["prompt_tokens"]
    pages = (prompt - 1) // 16 * 16  # all but the last token, in full pages
    assert [u["prompt_tokens_details"]["cached_tokens"] for u in usages] == [0, pages, pages, 0]

    def counted():
        delta.stop()
        return delta.of("vllm:prefix_cache_queries_total"), delta.of("vllm:prefix_cache_hits_total")

    # of six choices, all but the first find what can be found; the echo reads nothing and counts nothing
    wait_for("the engine's counters", lambda: counted() == (6 * prompt, 5 * pages), 3 * SLOW)


def test_gauges_return_to_0_within_a_second_of_cancelling_everything(stack):
    key, n = stack.new_key("cancel-all"), 8
    waiting = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    clients = [httpx2.Client(timeout=60 * SLOW) for _ in range(n)]
    streams = []
    try:
        for i, c in enumerate(clients):
            request = c.build_request("POST", stack.base + "/v1/chat/completions", headers=auth(key),
                                      json=body(i, stream=True, max_tokens=4000, ignore_eos=True))
            streams.append(c.send(request, stream=True))
        wait_for("all in the engine", lambda: sum(stack.metric(g) for g in waiting) == n, 20 * SLOW)
        assert stack.metric("vllm:kv_cache_usage_perc") > 0
    finally:
        for s, c in zip(streams, clients):
            s.close()
            c.close()
    gauges = (*waiting, "vllm:kv_cache_usage_perc", "sluice_requests_in_flight")
    wait_for("gauges at 0", lambda: all(stack.metric(g) == 0 for g in gauges), 1 * SLOW, 0.02)
    assert len(stack.wait_rows(n, "t.name = 'cancel-all'")) == n


def timed_stream(client, stack, key, i):
    """Seconds from the request to each text, and to the end, by this side's clock."""
    long = " ".join(f"Item {k} of list {i} is number {k * 7}." for k in range(30))
    begin, texts = time.perf_counter(), []
    with client.stream("POST", stack.base + "/v1/chat/completions", headers=auth(key),
                       json={**body(i, stream=True, ignore_eos=True),
                             "messages": [{"role": "user", "content": long}]}) as r:
        for line in r.iter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                texts.append(time.perf_counter() - begin)
    return texts, time.perf_counter() - begin


def buckets(delta, name):
    """(upper bound, values up to it), ascending."""
    bounds = re.findall(rf'vllm:{name}_bucket{{[^}}]*le="([^"]+)"', "\n".join(delta.after))
    return [(float(b), delta.of(f"vllm:{name}_bucket", f',le="{b}"')) for b in bounds]


def test_times_agree_with_the_clients_clock(stack):
    """The server's run from the request's arrival to the token's, so they are the shorter ones: by the client's own work
    and the way of one request and one event, on one machine less than 50 ms."""
    error, key, n = 0.05 * SLOW, stack.new_key("timed"), 6
    with httpx2.Client(timeout=60 * SLOW) as client:
        timed_stream(client, stack, key, n)
        stack.wait_rows(1, "t.name = 'timed'")
        delta = Delta(stack)
        times = [timed_stream(client, stack, key, i) for i in range(n)]
        rows = stack.wait_rows(n + 1, "t.name = 'timed'")[1:]
    delta.stop()
    for name, seconds in (("time_to_first_token_seconds", [t[0][0] for t in times]),
                          ("e2e_request_latency_seconds", [t[1] for t in times])):
        assert delta.of(f"vllm:{name}_count") == n
        mine, its = sum(seconds) / n, delta.of(f"vllm:{name}_sum") / n
        print(f"{name}: client {mine * 1e3:.2f} ms, server {its * 1e3:.2f} ms")
        assert mine - error <= its <= mine, name
    # the phases are parts of the whole
    phases = sum(delta.of(f"vllm:request_{p}_time_seconds_sum") for p in ("queue", "prefill", "decode"))
    assert 0 < phases <= delta.of("vllm:e2e_request_latency_seconds_sum")

    # between tokens: every one but the first of each request; both ends of a stream are off by the error at most
    gaps, its = delta.of("vllm:inter_token_latency_seconds_count"), delta.of("vllm:inter_token_latency_seconds_sum")
    assert gaps == sum(r["output_tokens"] - 1 for r in rows)
    mine = sum(texts[-1] - texts[0] for texts, _ in times)
    print(f"between tokens: client {mine / gaps * 1e3:.2f} ms, server {its / gaps * 1e3:.2f} ms")
    assert abs(mine - its) <= n * error
    # no gap of the mean's size is told as a long one and some of nothing: half of them lie within a factor of 3
    near = [v for bound, v in buckets(delta, "inter_token_latency_seconds") if bound >= 3 * mine / gaps]
    assert near[0] >= gaps / 2


def test_what_routers_read_is_there_once_and_typed(stack):
    text = page(stack)
    for name in ROUTER_GAUGES:
        assert len(re.findall(rf"^{name}[{{ ]", text, re.M)) == 1, name
        assert f"\n# TYPE {name} gauge\n" in "\n" + text
    info = re.search(r'^vllm:cache_config_info\{.*block_size="(\d+)".*num_gpu_blocks="(\d+)".*\} 1$', text, re.M)
    assert int(info.group(1)) == 16 and int(info.group(2)) > 0
    stamp = float(re.search(r'^vllm:lora_requests_info\{max_lora="0",.*\} (\S+)$', text, re.M).group(1))
    assert abs(stamp - time.time()) < 5


def test_nothing_that_clients_send_makes_a_series(stack):
    word = f"x{uuid.uuid4().hex}"
    stack.chat(max_tokens=1)
    for i in range(3):
        assert stack.chat(model=f"{word}-{i}").status_code == 404
        assert stack.get(f"/v1/{word}/{i}").status_code == 404
        assert stack.get(f"/v1/models/{word}-{i}").status_code == 404
        assert stack.post("/v1/chat/completions", body(i), f"{word}-{i}").status_code == 401
        assert stack.chat(key=stack.new_key(f"{word}-{i}"), max_tokens=1, user=word).status_code == 200
    text = page(stack)
    assert word not in text
    assert len(text) < 64 * 1024


def cpu_seconds(pid):
    return sum(int((t / "schedstat").read_text().split()[0]) for t in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def test_20_scrapes_a_second_cost_little(stack):
    pid, n = stack.pid_of("gateway"), 40
    url = f"http://127.0.0.1:{stack.admin_port}/metrics"
    with httpx2.Client() as client:
        client.get(url)
        before, begin = cpu_seconds(pid), time.monotonic()
        for i in range(n):
            assert client.get(url).status_code == 200
            time.sleep(max(0, begin + (i + 1) / 20 - time.monotonic()))
        spent = cpu_seconds(pid) - before
    print(f"{spent / n * 1e6:.0f} us of CPU a scrape, the idle gateway's own included")
    assert spent / (n / 20) < 0.02 * SLOW
