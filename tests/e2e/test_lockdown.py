"""The engine is locked in: what it serves under the lock, every way out tried in the engine's own process, and files
of strangers read by a throw-away process of the same kind. The lists of sanitized builds are wider and prove nothing."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BIN, MODEL, ROOT, SANITIZED, Stack, scratch

CORPUS = ROOT / "tests/fuzz/corpus"
MODELS = ROOT / "build/models"
pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitized build's lock is wider")


@pytest.fixture(scope="module")
def demo():
    base = scratch("lockdown")
    s = Stack(base / "var", env={"SLUICE_TEST_SECRET": "hunter2"})
    try:
        yield s.start()
    finally:
        s.stop()
        shutil.rmtree(base, ignore_errors=True)


def engine_log(stack):
    return next(stack.dir.glob("**/engine.log")).read_text()


def status(path):
    return dict(re.findall(r"^(\w+):\s*(.*)$", path.read_text(), re.M))


def test_the_model_is_served_under_the_lock(demo):
    r = demo.chat("Say hello.")
    assert r.status_code == 200, r.text
    assert r.json()["usage"]["completion_tokens"] > 0
    pid = demo.pid_of("engine")
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    assert len(tasks) >= 1
    for task in tasks:
        s = status(task / "status")
        assert (s["Seccomp"], s["NoNewPrivs"]) == ("2", "1")
        assert int(s["CapEff"], 16) == int(s["CapPrm"], 16) == 0
    assert re.search(r"engine\.lockdown seccomp=on landlock=\S+ netns=\S+ no_new_privs=on", engine_log(demo))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at it")
def test_neither_environment_network_nor_files_are_left(demo):
    pid = demo.pid_of("engine")
    assert Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0") == b""
    if "netns=on" in engine_log(demo):
        assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    kinds = {os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir() if int(f.name) > 2}
    assert all(k.startswith(("socket:", "anon_inode:[signalfd]")) for k in kinds), kinds
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"^Max core file size\s+0\s+0\s", limits, re.M)


def test_no_way_leads_out_of_the_engine_process(demo):
    done = demo.cli("engine", "--check-lockdown", "--config", str(demo.config))
    rows = done.stdout.strip().splitlines()
    assert len(rows) > 15 and all(r.endswith(" held") for r in rows), done.stdout
    for tried in ("socket(AF_INET)", "execve", "open for writing", "read the configuration"):
        assert any(r.startswith(tried) for r in rows)
    assert demo.chat("Still there?").status_code == 200


def test_what_is_open_is_said(tmp_path):
    done = subprocess.run([str(BIN), "engine", "--check-lockdown", "--lockdown", "off", "--model", str(MODEL), "--socket",
                           str(tmp_path / "s")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.search(r"^socket\(AF_INET\) +GOT OUT +NOT HELD$", done.stdout, re.M), done.stdout


# ---- strangers' files ----

def inspect(path):
    return subprocess.run([str(BIN), "inspect", "--untrusted", str(path)], capture_output=True, timeout=60)


def assert_reported_or_refused(path):
    done = inspect(path)
    text = done.stderr.decode(errors="replace")
    assert "signal" not in text, f"{path}: {text}"
    if done.returncode == 0:
        assert done.stdout and not text
        return "reported"
    assert done.returncode == 1 and not done.stdout, f"{path}: {done}"
    assert len(text.strip().splitlines()) == 1, f"{path}: {text}"
    return "refused"


def test_the_throw_away_process_reports_what_the_plain_one_does():
    plain = subprocess.run([str(BIN), "inspect", str(MODEL)], capture_output=True, timeout=60)
    assert inspect(MODEL).stdout == plain.stdout != b""


def test_hostile_gguf_files_are_refused_and_nothing_worse():
    files = sorted((CORPUS / "gguf").iterdir()) + sorted((CORPUS / "tokenizer").iterdir())
    got = [assert_reported_or_refused(f) for f in files]
    assert len(got) > 40 and "refused" in got


@pytest.mark.parametrize("kind, file", [("safetensors", "model.safetensors"), ("hf_config", "config.json"),
                                        ("hf_generation", "generation_config.json"),
                                        ("tokenizer_json", "tokenizer.json")])
def test_hostile_folders_are_refused_and_nothing_worse(tmp_path, kind, file):
    folder = tmp_path / "model"
    shutil.copytree(MODELS / "qwen3", folder)
    got = []
    for hostile in sorted((CORPUS / kind).iterdir()):
        # Behind a NUL stands the tokenizer_config.json that goes with a tokenizer.json.
        text, _, rest = hostile.read_bytes().partition(b"\0") if kind == "tokenizer_json" else (hostile.read_bytes(), b"", b"")
        (folder / file).write_bytes(text)
        if rest:
            (folder / "tokenizer_config.json").write_bytes(rest)
        got.append(assert_reported_or_refused(folder))
    assert len(got) >= 5 and "refused" in got


def kernel_has_landlock():
    """landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION), asked without our program: it says nothing
    of what that makes of it."""
    return ctypes.CDLL(None, use_errno=True).syscall(444, None, ctypes.c_size_t(0), 1) > 0


@pytest.mark.skipif(not kernel_has_landlock(), reason="a kernel without Landlock")
def test_a_link_out_of_a_folder_is_not_followed(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MODELS / "qwen3", folder)
    secret = tmp_path / "secret.json"
    secret.write_bytes((folder / "config.json").read_bytes())
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(secret)
    done = inspect(folder)
    assert done.returncode == 1
    assert b"config.json" in done.stderr
