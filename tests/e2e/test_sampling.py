"""Sampling, choices, log-probabilities and the prefix cache, as clients of the official SDK see them."""

import concurrent.futures as futures
import json
import math
import re
import struct

import httpx2
import openai
import pytest

from conftest import MODEL, MODEL_ID, SLOW, sse_events, wait_for
from test_schemas import validate

MESSAGES = [{"role": "user", "content": "Write one sentence about the sea."}]
# Several KV pages of one text.
LONG = "The harbour was full of boats that had come in before the storm, and every one of them had a name. " * 8


@pytest.fixture(scope="module")
def sdk(stack):
    return openai.OpenAI(api_key=stack.demo_key, base_url=stack.base + "/v1", max_retries=0, timeout=120 * SLOW)


def ids_of(stack, text):
    return json.loads(stack.cli("tokenize", "--model", str(MODEL), "--no-special", input=text).stdout)["ids"]


def chat(sdk, **fields):
    return sdk.chat.completions.create(**{"model": MODEL_ID, "messages": MESSAGES, "max_tokens": 16, **fields})


def complete(sdk, prompt, **fields):
    return sdk.completions.create(**{"model": MODEL_ID, "prompt": prompt, "max_tokens": 8, "temperature": 0, **fields})


# ---- choices ----

def texts(sdk, **fields):
    return [c.message.content for c in chat(sdk, temperature=1.2, **fields).choices]


def test_8_choices_of_one_seed_differ_and_repeat(sdk):
    first = texts(sdk, n=8, seed=11)
    assert len(set(first)) == 8
    assert texts(sdk, n=8, seed=11) == first
    assert texts(sdk, n=1, seed=11) == first[:1], "a choice depends on how many there are"
    assert texts(sdk, n=8, seed=12) != first


def test_streamed_choices_are_the_whole_ones(sdk):
    whole = chat(sdk, n=4, seed=3, temperature=1.2)
    parts, roles, ends = [""] * 4, [0] * 4, [None] * 4
    usage = None
    for chunk in chat(sdk, n=4, seed=3, temperature=1.2, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for c in chunk.choices:
            assert ends[c.index] is None, "something follows a choice's end"
            if c.delta.role:
                assert parts[c.index] == "", "the role is not first"
                roles[c.index] += 1
            parts[c.index] += c.delta.content or ""
            ends[c.index] = c.finish_reason
    assert parts == [c.message.content for c in whole.choices]
    assert ends == [c.finish_reason for c in whole.choices]
    assert roles == [1] * 4
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_the_prompt_is_billed_once_for_all_choices(stack):
    key = stack.new_key("choices")
    one = stack.chat("How many?", key=key, max_tokens=4, ignore_eos=True).json()["usage"]
    three = stack.chat("How many?", key=key, max_tokens=4, ignore_eos=True, n=3, temperature=1).json()["usage"]
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["completion_tokens"] == 3 * one["completion_tokens"] == 12
    rows = stack.wait_rows(2, "t.name = 'choices'")
    assert [(r["prompt_tokens"], r["output_tokens"]) for r in rows] == [
        (u["prompt_tokens"], u["completion_tokens"]) for u in (one, three)]
    assert rows[1]["cached_tokens"] == three["prompt_tokens_details"]["cached_tokens"]


def test_all_choices_are_reserved(stack):
    """More output than the tokens-per-minute limit ever allows, only because there are 128 of it."""
    key = stack.new_key("reserve", tpm=5000)
    assert stack.chat(key=key, max_tokens=40).status_code == 200
    r = stack.chat(key=key, max_tokens=40, n=128)
    assert r.status_code == 429 and r.headers["x-should-retry"] == "false"


def test_the_fingerprint_names_the_device_and_is_one_for_all_shapes(sdk):
    name = r"fp_cpu-(scalar|avx2|avx512)-fast-[0-9a-f]{12}"
    seen = {chat(sdk, max_tokens=1).system_fingerprint, complete(sdk, "a", max_tokens=1).system_fingerprint}
    seen |= {c.system_fingerprint for c in chat(sdk, max_tokens=1, stream=True)}
    assert len(seen) == 1 and re.fullmatch(name, seen.pop())


# ---- log-probabilities ----

def check_chat_logprobs(content, text, most):
    # a choice that ends within a character has U+FFFD for its half
    assert b"".join(bytes(t["bytes"]) for t in content).decode(errors="replace") == text
    for t in content:
        tops = t["top_logprobs"]
        assert len(tops) == most
        assert [x["logprob"] for x in tops] == sorted((x["logprob"] for x in tops), reverse=True)
        assert t["logprob"] <= 0 and sum(math.exp(x["logprob"]) for x in tops) < 1.001
        for x in [t, *tops]:
            assert x["token"] == bytes(x["bytes"]).decode(errors="replace") or "\ufffd" in x["token"]


@pytest.mark.parametrize("text", ["Write one sentence about the sea.",
                                  "Repeat: \U0001f600 \u4f60\u597d \u017elu\u0165ou\u010dk\u00fd \U0001f468\u200d\U0001f469"])
@pytest.mark.parametrize("most", [0, 5, 20])
def test_chat_logprobs(stack, text, most):
    fields = dict(max_tokens=16, seed=5, temperature=0.9, logprobs=True, top_logprobs=most)
    whole = stack.chat(text, **fields).json()
    validate("chat.completion", whole)
    choice = whole["choices"][0]
    check_chat_logprobs(choice["logprobs"]["content"], choice["message"]["content"], most)
    assert choice["logprobs"]["refusal"] is None

    events = sse_events(stack.chat(text, **fields, stream=True).text)
    assert events.pop() == "[DONE]"
    streamed = []
    for e in events:
        validate("chat.completion.chunk", e)
        part = e["choices"][0]
        if part["logprobs"] is not None:
            streamed += part["logprobs"]["content"]
    assert streamed == choice["logprobs"]["content"]


def test_logprobs_are_of_the_raw_logits(stack):
    """Temperature, penalties and bias choose the token; they do not change what is told of it."""
    def first(**fields):
        r = stack.chat("Count.", max_tokens=1, logprobs=True, top_logprobs=20, **fields)
        return {bytes(x["bytes"]): x["logprob"] for x in r.json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
    plain = first(temperature=0)
    assert first(temperature=1.7, seed=1, top_k=3, presence_penalty=2, logit_bias={"5": -100}) == plain


def test_a_greedy_token_is_the_most_probable_one(stack):
    r = stack.chat("Count to five.", max_tokens=12, temperature=0, logprobs=True, top_logprobs=1)
    for t in r.json()["choices"][0]["logprobs"]["content"]:
        assert t["top_logprobs"][0]["bytes"] == t["bytes"]


def offsets_fit(choice):
    lp = choice["logprobs"]
    assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"])
    for token, at in zip(lp["tokens"], lp["text_offset"]):
        if not token.startswith("bytes:"):
            assert choice["text"][at:at + len(token)] == token


def test_completion_logprobs(stack):
    body = {"model": MODEL_ID, "prompt": "One, two, three,", "max_tokens": 8, "temperature": 0, "logprobs": 3}
    whole = stack.post("/v1/completions", body).json()
    validate("completion", whole)
    choice = whole["choices"][0]
    offsets_fit(choice)
    assert choice["logprobs"]["text_offset"][0] == 0
    assert all(3 <= len(m) <= 4 for m in choice["logprobs"]["top_logprobs"])
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    events = sse_events(stack.post("/v1/completions", {**body, "stream": True}).text)
    assert events.pop() == "[DONE]"
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = []
        for e in events:
            validate("completion.chunk", e)
            parts += (e["choices"][0]["logprobs"] or {}).get(name, [])
        assert parts == choice["logprobs"][name]


def object_once(members):
    assert len(dict(members)) == len(members), "a key comes twice"
    return dict(members)


def test_top_logprobs_of_long_tokens_have_no_key_twice(stack):
    """80 # are one token of the demo model, and of a row of such lines the most probable one."""
    line = "#" * 80
    body = {"model": MODEL_ID, "prompt": f"{line}\n# Part\n" * 6 + line, "max_tokens": 0, "echo": True, "logprobs": 2}
    r = stack.post("/v1/completions", body)
    assert r.status_code == 200
    maps = json.loads(r.text, object_pairs_hook=object_once)["choices"][0]["logprobs"]["top_logprobs"]
    assert any(len(key) > 64 for m in maps[1:] for key in m)


@pytest.mark.parametrize("max_tokens", [0, 4])
@pytest.mark.parametrize("n", [1, 2])
def test_echo_with_logprobs(stack, max_tokens, n):
    prompt = "The capital of France is Paris."
    body = {"model": MODEL_ID, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 2, "echo": True,
            "n": n}
    whole = stack.post("/v1/completions", body).json()
    validate("completion", whole)
    assert whole["usage"]["completion_tokens"] == n * max_tokens
    for choice in whole["choices"]:
        lp = choice["logprobs"]
        offsets_fit(choice)
        assert choice["text"].startswith(prompt)
        assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
        assert all(x <= 0 for x in lp["token_logprobs"][1:])
        assert len(lp["tokens"]) == whole["usage"]["prompt_tokens"] + max_tokens
    text = [""] * n
    events = sse_events(stack.post("/v1/completions", {**body, "stream": True}).text)
    assert events.pop() == "[DONE]"
    for e in events:
        validate("completion.chunk", e)
        text[e["choices"][0]["index"]] += e["choices"][0]["text"]
    assert text == [c["text"] for c in whole["choices"]]


def test_prompt_logprobs_are_those_of_the_same_tokens_when_generated(stack):
    """What a model says of its own greedy text is the same, generated or given."""
    body = {"model": MODEL_ID, "prompt": "One, two, three,", "max_tokens": 6, "temperature": 0, "logprobs": 0}
    made = stack.post("/v1/completions", body).json()["choices"][0]
    again = stack.post("/v1/completions", {**body, "prompt": body["prompt"] + made["text"], "max_tokens": 0,
                                           "echo": True}).json()["choices"][0]
    n = len(made["logprobs"]["tokens"])
    if again["logprobs"]["tokens"][-n:] == made["logprobs"]["tokens"]:  # it may be split otherwise
        assert again["logprobs"]["token_logprobs"][-n:] == pytest.approx(made["logprobs"]["token_logprobs"], abs=1e-3)
    assert again["logprobs"]["token_logprobs"][0] is None


def test_echo_of_ids_is_their_text(stack, sdk):
    ids = ids_of(stack, "Twelve \u00e9clairs")
    assert complete(sdk, ids, echo=True, max_tokens=1).choices[0].text.startswith("Twelve \u00e9clairs")


# ---- what is chosen ----

def test_a_bias_forces_and_bans(stack, sdk):
    forced = ids_of(stack, " seven")
    assert len(forced) == 1
    r = complete(sdk, "One, two, three,", max_tokens=4, logit_bias={str(forced[0]): 100})
    assert r.choices[0].text == " seven" * 4
    plain = complete(sdk, "One, two, three,", max_tokens=1, logprobs=1).choices[0]
    banned = ids_of(stack, plain.text)
    assert len(banned) == 1
    other = complete(sdk, "One, two, three,", max_tokens=1, logit_bias={str(banned[0]): -100}).choices[0]
    assert other.text != plain.text


def test_a_stop_id_ends_and_is_not_sent(stack, sdk):
    plain = complete(sdk, "1, 2, 3, 4, 5,", max_tokens=12, logprobs=0).choices[0]
    at = plain.logprobs.tokens.index(",")
    comma = ids_of(stack, ",")
    r = complete(sdk, "1, 2, 3, 4, 5,", max_tokens=12, extra_body={"stop_token_ids": comma}).choices[0]
    assert r.finish_reason == "stop"
    assert r.text == "".join(plain.logprobs.tokens[:at])


def test_min_tokens_puts_the_end_off(stack, sdk):
    end = {"2": 100}  # <|im_end|> comes as soon as it may
    short = chat(sdk, temperature=0, max_tokens=100, logit_bias=end)
    assert (short.choices[0].finish_reason, short.usage.completion_tokens) == ("stop", 1)
    longer = chat(sdk, temperature=0, max_tokens=100, logit_bias=end, extra_body={"min_tokens": 10})
    assert (longer.choices[0].finish_reason, longer.usage.completion_tokens) == ("stop", 11)


@pytest.mark.parametrize("penalty", [{"frequency_penalty": 2}, {"presence_penalty": 2},
                                     {"extra_body": {"repetition_penalty": 1.8}}], ids=str)
def test_a_penalty_reduces_repetition(sdk, penalty):
    def distinct(**fields):
        tokens = complete(sdk, "ha ha ha ha ha ha ha ha", max_tokens=24, logprobs=0, **fields).choices[0].logprobs.tokens
        return len(set(tokens)) / len(tokens)
    assert distinct(**penalty) > distinct()


def test_min_p_of_1_is_greedy(sdk):
    assert chat(sdk, temperature=2, seed=1, extra_body={"min_p": 1}).choices[0].message.content == \
        chat(sdk, temperature=0).choices[0].message.content


def test_flex_is_told(sdk):
    assert chat(sdk, service_tier="flex").service_tier == "flex"
    assert chat(sdk, service_tier="auto").service_tier == "default"
    assert chat(sdk).service_tier is None
    tiers = {c.service_tier for c in chat(sdk, service_tier="flex", stream=True)}
    assert tiers == {"flex"}


def with_metadata(source, target, key, value):
    """A copy of a GGUF file with one more float; a second key pads, so that the tensors stay aligned to 32 bytes."""
    data = source.read_bytes()
    magic, version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", data)
    entry = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<If", 6, value)
    room = -(len(entry) + 8 + len("test.pad") + 4 + 8) % 32
    pad = struct.pack("<Q", 8) + b"test.pad" + struct.pack("<IQ", 8, room) + b"." * room
    target.write_bytes(struct.pack("<4sIQQ", magic, version, n_tensors, n_keys + 2) + entry + pad + data[24:])


def test_a_model_s_own_defaults_hold_when_the_administrator_says_so(own_stack):
    stack = own_stack
    path = stack.dir.parent / MODEL.name
    with_metadata(MODEL, path, "general.sampling.temp", 0.0)
    stack.model_file = path
    stack.start()

    def texts_of(**fields):
        return {stack.chat("Invent a word.", max_tokens=12, seed=seed, **fields).json()["choices"][0]["message"]["content"]
                for seed in range(4)}

    greedy = texts_of(temperature=0)
    assert len(texts_of(temperature=None)) > 1, "OpenAI's default is 1"
    stack.configure("model", "generation_defaults: model")
    stack.kill("gateway")
    wait_for("the loss seen", lambda: not stack.is_ready(), 20 * SLOW)
    stack.wait_ready()
    assert texts_of(temperature=None) == greedy
    assert len(texts_of(temperature=1.5)) > 1, "what a request says goes before"


# ---- the prefix cache ----

def cached(stack, key, text, **fields):
    r = stack.chat(text, key=key, max_tokens=2, **fields)
    assert r.status_code == 200, r.text
    return r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_second_long_prompt_is_cached_and_billed_so(stack):
    key = stack.new_key("cache")
    usages = [stack.chat(LONG, key=key, max_tokens=4).json()["usage"] for _ in range(2)]
    first, second = (u["prompt_tokens_details"]["cached_tokens"] for u in usages)
    assert first == 0 and 0 < second < usages[1]["prompt_tokens"]
    assert second % 16 == 0
    rows = stack.wait_rows(2, "t.name = 'cache'")
    assert [r["cached_tokens"] for r in rows] == [first, second]
    with stack.database() as db:
        for r in rows:
            full, half, out, each = db.execute("SELECT input_nanos, cached_nanos, output_nanos, request_nanos FROM prices"
                                               " WHERE id = %s", [r["price_id"]]).fetchone()
            numerator = ((r["prompt_tokens"] - r["cached_tokens"]) * full + r["cached_tokens"] * half +
                         r["output_tokens"] * out)
            assert r["cost_nanos"] == (numerator + 500_000) // 1_000_000 + each
    assert rows[1]["cost_nanos"] < rows[0]["cost_nanos"]
    events = sse_events(stack.chat(LONG, key=key, max_tokens=4, stream=True, stream_options={"include_usage": True}).text)
    assert events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] == second


def test_a_hit_stays_within_its_tenant(stack):
    text = "Tenants. " + LONG
    mine, same, other = stack.new_key("salt-a"), stack.new_key("salt-a"), stack.new_key("salt-b")
    assert cached(stack, mine, text) == 0
    assert cached(stack, other, text) == 0, "another tenant's pages were used"
    assert cached(stack, same, text) > 0
    assert cached(stack, other, text) > 0


def test_salts_of_clients_are_ignored(stack):
    text = "Salts. " + LONG
    mine, other = stack.new_key("clientsalt-a"), stack.new_key("clientsalt-b")
    sent = {"prompt_cache_key": "shared", "user": "shared", "cache_salt": "shared", "safety_identifier": "shared"}
    assert cached(stack, mine, text, **sent) == 0
    assert cached(stack, other, text, **sent) == 0, "a client's field joined two tenants"
    assert cached(stack, mine, text, prompt_cache_key="x", user="x", cache_salt="x") > 0, "a client's field split one"


def test_a_cached_prompt_gives_the_same_answer(stack):
    key = stack.new_key("cache-same")
    answers = [stack.chat("Same. " + LONG, key=key, max_tokens=12, temperature=1, seed=4, logprobs=True).json()["choices"][0]
               for _ in range(2)]
    assert answers[0] == answers[1]


# ---- the queue ----

def flood(stack, key, n):
    """n long requests at once; their answers."""
    with httpx2.Client(limits=httpx2.Limits(max_connections=n)) as c, futures.ThreadPoolExecutor(n) as pool:
        jobs = [pool.submit(stack.post, "/v1/chat/completions",
                            {"model": MODEL_ID, "messages": MESSAGES, "max_tokens": 60, "ignore_eos": True}, key, c)
                for _ in range(n)]
        return [j.result() for j in jobs]


@pytest.mark.parametrize("section,line,part", [("engine", "queue_max: 1", "engine"), ("engine", "queue_max_ms: 20", "gateway")],
                         ids=["full", "too long"])
def test_a_queue_that_is_full_or_too_slow_is_a_503(own_stack, section, line, part):
    stack = own_stack.start()
    stack.configure("engine", "max_sequences: 1")
    stack.configure(section, line)
    stack.kill("engine")
    if part == "gateway":
        stack.kill("gateway")
    wait_for("the loss seen", lambda: not stack.is_ready(), 20 * SLOW)
    stack.wait_ready()
    first = stack.new_key("first")
    # Before its first step the engine measures what steps take; nobody waits 20 ms for a slot after that.
    wait_for("an engine at rest", lambda: stack.chat(key=first, max_tokens=1).status_code == 200, 20 * SLOW)
    key = stack.new_key("queue", rpm=1000)
    answers = flood(stack, key, 8)
    refused = [a for a in answers if a.status_code == 503]
    assert refused and any(a.status_code == 200 for a in answers)
    assert {a.status_code for a in answers} == {200, 503}
    for a in refused:
        validate("error", a.json())
        assert a.json()["error"]["code"] == "overloaded"
        assert int(a.headers["retry-after"]) >= 1 and int(a.headers["retry-after-ms"]) >= 1
    rows = stack.wait_rows(len(answers), "t.name = 'queue'")
    failed = [r for r in rows if r["outcome"] == "failed"]
    assert len(failed) == len(refused)
    assert all((r["prompt_tokens"], r["output_tokens"], r["cost_nanos"]) == (0, 0, 0) for r in failed)
    remaining = int(stack.chat(key=key, max_tokens=1).headers["x-ratelimit-remaining-requests"])
    assert remaining >= 999 - (len(answers) - len(refused)), "a refusal was counted against a limit"


def test_a_key_s_priority_is_kept_and_listed(stack):
    key = stack.new_key("classes", priority="low")
    assert stack.chat(key=key, max_tokens=1).status_code == 200
    listed = json.loads(stack.cli("key", "list", "--config", str(stack.config), "--tenant", "classes", "--json").stdout)
    assert [k["priority"] for k in listed["keys"]] == ["low"]
    bad = stack.cli("key", "create", "--config", str(stack.config), "--tenant", "classes", "--priority", "urgent", check=False)
    assert bad.returncode == 2 and "high, normal, low" in bad.stderr
