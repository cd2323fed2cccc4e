"""Upgrades under load: a gateway of the next version beside one of this on the same engine, then in its place; and an engine
replaced by its successor. Not one of the requests meanwhile fails.

SLUICE_NEXT              a build that speaks the next version of the frames (default build/next/sluice: `make next`)
SLUICE_ROLLING_REQUESTS  how many requests (default 2000; 10,000 are for the record)
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from conftest import BIN, ROOT, SANITIZED, SLOW, Several, free_ports, scratch, wait_for
from rush import Rush
from test_fleet import SHALLOW, Fleet, Story, shallow  # noqa: F401 (a fixture)

NEXT = Path(os.environ.get("SLUICE_NEXT", ROOT / "build/next/sluice")).resolve()
REQUESTS = int(os.environ.get("SLUICE_ROLLING_REQUESTS", "2000"))
LONG_TOKENS = 300  # of a stream that is under way when its gateway, or its engine, is told to stop
SWAPS = 4


class House(Fleet):
    """A supervisor with one quick model, whose program is a file of the house's own, to be replaced."""

    def __init__(self, stack, base, model):
        self.program = base / "sluice"
        shutil.copy(BIN, self.program)
        super().__init__(stack, base / "var", [{"path": str(model), "id": SHALLOW, "threads": 1, "kv_mb": 64}])

    def write_config(self):
        Several.write_config(self)

    def spawn(self, *args):
        return subprocess.Popen([str(self.program), *args, "--with-engine"], stdin=subprocess.DEVNULL, stdout=self.output,
                                stderr=subprocess.STDOUT)

    def replace_program(self, program):
        """As a package does: by rename."""
        shutil.copy(program, self.program.parent / "sluice.next")
        os.rename(self.program.parent / "sluice.next", self.program)


@pytest.fixture
def house(stack, shallow):  # noqa: F811
    base = scratch("rolling")
    h = House(stack, base, shallow)
    try:
        yield h.start()
    finally:
        h.stop()
        if not os.environ.get("SLUICE_KEEP_LOGS"):
            shutil.rmtree(base, ignore_errors=True)


class NextGateway:
    """A gateway of the next version on a house's engine, with ports and a journal of its own."""

    def __init__(self, house):
        port, admin_port = free_ports(2)
        text = house.config.read_text().replace(f"port: {house.port}", f"port: {port}")
        text = text.replace(f"port: {house.admin_port}", f"port: {admin_port}")
        text = text.replace(f"{house.dir}/journal", f"{house.dir}/journal.next")
        (house.dir / "journal.next").mkdir()
        path = house.config.with_suffix(".next.yaml")
        path.write_text(text)
        self.base = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([str(NEXT), "serve", "--config", str(path)], stdin=subprocess.DEVNULL,
                                        stdout=house.output, stderr=subprocess.STDOUT)
        wait_for("a second gateway", self.is_ready, 30 * SLOW)

    def is_ready(self):
        assert self.process.poll() is None
        try:
            return httpx2.get(self.base + "/readyz", timeout=5).status_code == 200
        except httpx2.HTTPError:
            return False

    def stop(self):
        self.process.terminate()
        return self.process.wait(60 * SLOW)


def begun_stories(house, key, n):
    stories = [Story(house, key, SHALLOW, LONG_TOKENS, seed=i) for i in range(n)]
    wait_for("streams", lambda: all(s.has_begun() for s in stories), 30 * SLOW)
    return stories


@pytest.mark.skipif(SANITIZED or not NEXT.exists(), reason="needs build/next/sluice: make next")
def test_a_gateway_of_the_next_version_takes_over(house):
    key = house.new_key("rolling", rpm=1000000, tpm=100000000, concurrency=1000)
    rush = Rush("r", [house.base], key, SHALLOW, REQUESTS)
    rush.wait_done(0.2)
    engine, old = house.engine_pid(SHALLOW), house.pid_of("gateway")
    second = NextGateway(house)
    try:
        rush.targets = [house.base, second.base]  # both versions on one engine
        rush.wait_done(0.4)
        rush.leave(house.base)
        stories = begun_stories(house, key, 4)
        house.replace_program(NEXT)
        assert any(s.is_alive() for s in stories)
        os.kill(old, signal.SIGTERM)
        assert all(len(s.result()[0]) > 0 and not s.result()[1] for s in stories), "what it has begun it ends"
        wait_for("its successor", lambda: house.pid_of("gateway") not in (None, old), 30 * SLOW)
        house.wait_ready()
        assert os.path.samefile(f"/proc/{house.pid_of('gateway')}/exe", house.program), "of the next version"
        rush.wait_done(0.6)
        rush.targets = [house.base, second.base]
        rush.wait_done(0.7)
        assert house.engine_pid(SHALLOW) == engine, "no model was loaded for that"
        assert house.model("swap", SHALLOW).returncode == 0
        assert house.engine_pid(SHALLOW) != engine, "of the next version too"
        rush.wait_done(0.8)
        rush.leave(second.base)
        assert second.stop() == 0
        rush.check(house, "rolling")
    finally:
        second.process.kill()
    rows = house.wait_rows(REQUESTS + 4, "t.name = 'rolling'")
    assert [r["output_tokens"] for r in rows if r["client_request_id"] is None] == [LONG_TOKENS] * 4
    assert len(rows) == REQUESTS + 4


@pytest.mark.skipif(SANITIZED, reason="a load for a quick build")
def test_an_engine_is_replaced_under_load(house):
    key = house.new_key("swapped", rpm=1000000, tpm=100000000, concurrency=1000)
    rush = Rush("s", [house.base], key, SHALLOW, REQUESTS)
    pids = [house.engine_pid(SHALLOW)]
    for n in range(SWAPS):
        rush.wait_done((n + 0.5) / SWAPS)
        stories = begun_stories(house, key, 2)
        began = time.monotonic()
        assert house.model("swap", SHALLOW).returncode == 0
        print(f"swap {n + 1}: {time.monotonic() - began:.2f} s, {rush.n_done} of {REQUESTS} requests so far")
        pids.append(house.engine_pid(SHALLOW))
        assert not any(s.result()[1] for s in stories), "what the old one has begun it ends"
    rush.check(house, "swapped")
    assert len(set(pids)) == SWAPS + 1
    assert house.status()[1][SHALLOW]["deaths"] == 0
