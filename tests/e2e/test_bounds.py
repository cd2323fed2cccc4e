"""What a request may ask for, and what all of them together may hold."""

import json
import re
import socket
import time
import uuid

import pytest

from conftest import MODEL_ID, SLOW, sse_events, stack_of_its_own, wait_for
from test_bad_input import check_error
from test_schemas import validate

QUEUE_MAX = 100
ANSWERS_MAX = 4 << 20
# 64 dashes are one token of the demo model.
DASHES_PER_TOKEN = 64


@pytest.fixture(scope="module")
def narrow():
    """A stack with small bounds."""
    with stack_of_its_own("bounds") as stack:
        stack.start()
        stack.configure("engine", f"tenant_queue_max: {QUEUE_MAX}")
        stack.configure("engine", "max_sequences: 128")
        stack.configure("server", f"answers_max_bytes: {ANSWERS_MAX}")
        stack.restart("engine", "gateway")
        yield stack


def echo(n_tokens, **fields):
    return {"model": MODEL_ID, "prompt": "-" * (DASHES_PER_TOKEN * n_tokens), "echo": True, "max_tokens": 1, **fields}


def refused_before_all(stack, tenant, body, param, code=None):
    """A 400 that names the field; nothing was reserved or journaled."""
    r = stack.post("/v1/completions", body, stack.new_key(tenant, rpm=100))
    check_error(r, 400, param, code)
    assert "x-ratelimit-remaining-requests" not in r.headers
    assert stack.rows("t.name = %s", tenant) == []


def test_more_choices_than_the_queue_ever_takes_are_a_400(narrow):
    body = {"model": MODEL_ID, "prompt": "hi", "max_tokens": 1}
    refused_before_all(narrow, "choices", {**body, "n": QUEUE_MAX + 1}, "n", "invalid_value")
    assert narrow.post("/v1/completions", {**body, "n": QUEUE_MAX}, narrow.new_key("fits")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_that_no_answer_holds_is_refused_before_anything_is_reserved(narrow, stream):
    # 5,600 tokens of 64 bytes in each of 100 choices are more than 32 MiB
    refused_before_all(narrow, f"echo-{stream}", echo(5600, n=QUEUE_MAX, stream=stream), "n", "answer_too_large")


def test_a_stream_of_many_chunks_is_whole(narrow):
    body, n = echo(1024, n=30, stream=True, max_tokens=0), 30
    events = sse_events(narrow.post("/v1/completions", body, narrow.new_key("long")).text)
    texts = [""] * n
    for e in events[:-1]:
        for c in e["choices"]:
            texts[c["index"]] += c["text"]
    assert events[-1] == "[DONE]" and texts == [body["prompt"]] * n


class StuckReader:
    """Asks for a stream and reads no more than its head; small windows, so that the kernel holds little."""

    def __init__(self, stack, key, body):
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.sock.connect(("127.0.0.1", stack.port))
        data = json.dumps(body).encode()
        self.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + key.encode() +
                          b"\r\ncontent-type: application/json\r\ncontent-length: " + str(len(data)).encode() +
                          b"\r\nconnection: close\r\n\r\n" + data)

    def read_id(self):
        """The request's, as a usage row has it."""
        self.sock.settimeout(60 * SLOW)
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(512)
        return uuid.UUID(re.search(rb"x-request-id: req_([0-9a-f]{32})\r", head).group(1).decode())

    def read_all(self):
        out = b""
        while block := self.sock.recv(1 << 20):
            out += block
        return out


def last_event(raw):
    """The stream's last event, without the chunks' framing."""
    blocks = [b for b in raw.replace(b"\r\n", b"\n").split(b"data: ") if b.startswith(b"{")]
    return json.loads(blocks[-1][:blocks[-1].rindex(b"}") + 1])


def test_readers_that_stop_cost_memory_up_to_a_bound(narrow):
    """Each stream holds almost two megabytes for its reader; three together are more than may wait."""
    key, n = narrow.new_key("stuck"), 3
    # The first request leaves its pages to the others.
    assert narrow.post("/v1/completions", {**echo(1024), "max_tokens": 0}, key).status_code == 200
    body = echo(1024, n=30, stream=True, max_tokens=4000, ignore_eos=True)
    opened, most = [StuckReader(narrow, key, body) for _ in range(n)], 0
    try:
        end = time.monotonic() + 60 * SLOW
        while narrow.metric("sluice_answers_ended_total") == 0:
            assert time.monotonic() < end, narrow.metrics()
            most = max(most, narrow.metric("sluice_answer_bytes"))
            time.sleep(0.02)
        # the bound, and what one step adds: the prompt in every choice of one request
        assert most < ANSWERS_MAX + (2 << 20)
        # its memory is back at once, whether its client reads or not; the others hold theirs
        wait_for("its memory back", lambda: 1 << 20 < narrow.metric("sluice_answer_bytes") <= ANSWERS_MAX, 2 * SLOW)
        readers = {r.read_id(): r for r in opened}
        # it is billed for what it generated
        row = next(r for r in narrow.wait_rows(2, "t.name = 'stuck'", seconds=30) if r["id"] in readers)
        assert row["outcome"] == "cancelled" and row["output_tokens"] > 0 and row["cost_nanos"] > 0
        # its reader finds out why, if it goes on: an error, and no [DONE]
        raw = readers[row["id"]].read_all()
        event = last_event(raw)
        validate("error", event)
        assert event["error"]["code"] == "overloaded" and b"[DONE]" not in raw
        # the others lost nothing
        assert len(narrow.rows("t.name = 'stuck'")) == 2
    finally:
        for r in opened:
            r.sock.close()
    # once the clients are gone nothing is held, and the next request is served
    wait_for("nothing held", lambda: narrow.metric("sluice_answer_bytes") == 0, 30 * SLOW)
    assert narrow.chat(max_tokens=1).status_code == 200
