"""A limit of a control group is a bound of the memory plan: there the kernel kills what fits the machine."""

import os
import subprocess

import pytest

from conftest import BIN, MODEL, SLOW
from faults import memory_group

LIMIT_MIB = 100
CONFIG = """models: [{{id: small, path: {model}, kv_mb: 512}}]
engine: {{socket: {folder}/e.sock, threads: 1}}
postgres: {{conninfo: p}}
redis: {{socket: r}}
auth: {{pepper_file: p}}
billing: {{journal_dir: j}}
"""


@pytest.fixture
def group():
    made = memory_group()
    if made is None:
        pytest.skip("no control group of memory can be made here")
    folder, limit = made
    (folder / limit).write_text(str(LIMIT_MIB << 20))
    yield folder, limit
    folder.rmdir()


def test_what_a_group_cannot_hold_is_refused_with_its_limit(group, tmp_path):
    folder, limit = group
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG.format(model=MODEL, folder=tmp_path))

    def run(*args):
        return subprocess.run([str(BIN), *args], capture_output=True, text=True, timeout=60 * SLOW,
                              preexec_fn=lambda: (folder / "cgroup.procs").write_text(str(os.getpid())))

    bound = f"within the control group's limit of {LIMIT_MIB} MiB ({limit})"
    table = run("check-config", "--memory", str(path))
    assert table.returncode == 1 and bound in table.stderr
    assert f"({limit})" in table.stdout.splitlines()[-1]
    for args in (("--config", str(path)), ("--model", str(MODEL), "--socket", str(tmp_path / "e.sock"), "--kv-mb", "512")):
        done = run("engine", *args)
        assert done.returncode == 1 and "not enough memory" in done.stderr and bound in done.stderr
