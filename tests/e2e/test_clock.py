"""The wall clock is set while requests run: what is billed depends on no difference of its readings."""

import os
import subprocess
import threading

from conftest import SANITIZED, SLOW, wait_for

# Reads an hour less while the file is there.
SHIM = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t)
{
    const char *file = getenv("TEST_CLOCK_BACK");
    int rc = (int)syscall(SYS_clock_gettime, id, t);

    if (id == CLOCK_REALTIME && file != NULL && access(file, F_OK) == 0)
        t->tv_sec -= 3600;
    return rc;
}
"""


def test_a_clock_set_back_before_the_first_token(own_stack):
    shim, back = own_stack.dir.parent / "clock.so", own_stack.dir.parent / "back"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, "-x", "c", "-"], input=SHIM, text=True, check=True)
    # Only processes of ours are preloaded by name; a sanitizer's runtime wants to be the first otherwise.
    own_stack.env = {"LD_PRELOAD": str(shim), "TEST_CLOCK_BACK": str(back),
                     "ASAN_OPTIONS": "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")}
    stack = own_stack.start()
    key = stack.new_key("clock")
    # Long enough to set the clock before it is read; a sanitized engine reads some 20 tokens a second.
    prompt = "word " * (400 if SANITIZED else 1500)
    answers = []
    t = threading.Thread(target=lambda: answers.append(stack.chat(prompt, key=key, max_tokens=2)))
    t.start()
    wait_for("admission", lambda: stack.metrics()["sluice_journal_admitted_total"] == 1, 20 * SLOW)
    back.touch()
    assert t.is_alive(), "too late to show anything"
    t.join()
    assert answers[0].status_code == 200, answers[0].text
    row = stack.wait_rows(1, "t.name = 'clock'")[0]
    assert (row["outcome"], row["output_tokens"]) == ("completed", answers[0].json()["usage"]["completion_tokens"])
    assert 0 < row["ttft_us"] < 600e6
