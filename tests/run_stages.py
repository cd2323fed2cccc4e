#!/usr/bin/env python3
"""All tests, as `make test` runs them: run_stages.py [VARIABLE=VALUE...]; what is given goes to every make.

A stage is one call of make. Two lanes of them run side by side. The front one has what looks at times, one stage after the
other at the usual priority: the plain build's tests, then what each sanitized build shows of the running server. Those wait
more than they compute, so the back lane, which yields to them, builds and runs the rest in what they leave of the cores.

Each stage's output goes to build/logs/STAGE.log and is printed in one piece when the stage ends; a table of their seconds
closes the run, and the last lines of what failed. Stages that need a failed one are left out, all others run. Exit 1 if any
failed.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

LOGS = Path("build/logs")
LAST_LINES = 60  # of a failed stage's output, once more at the end
BACK_NICE = 10     # an engine that shares its cores is at 5
FUZZ_SECONDS = 5
ADDRESS, THREAD = "SAN=address,undefined", "SAN=thread"


class Stage:
    """make ARGS, once all of `needs` are done. An instance runs once."""

    def __init__(self, name, args, needs=()):
        self.name, self.args, self.needs = name, args, needs
        self.state, self.wall, self.cpu, self.child = "waiting", 0.0, 0.0, None
        self.ended = threading.Event()

    @property
    def log(self):
        return LOGS / f"{self.name}.log"

    def command(self, nice, variables):
        jobs = f"-j{os.cpu_count()}"
        return ["nice", "-n", str(nice), "make", "--no-print-directory", jobs, *self.args, *variables]

    def run(self, nice, variables, environment):
        """Waits for what it needs, then for its own end."""
        for n in self.needs:
            n.ended.wait()
        if all(n.state == "passed" for n in self.needs):
            begin = time.monotonic()
            with open(self.log, "wb") as log:
                self.child = subprocess.Popen(self.command(nice, variables), stdin=subprocess.DEVNULL, stdout=log,
                                              stderr=subprocess.STDOUT, env=environment)
                _, status, usage = os.wait4(self.child.pid, 0)
                self.child.returncode = os.waitstatus_to_exitcode(status)
            self.wall, self.cpu = time.monotonic() - begin, usage.ru_utime + usage.ru_stime
            self.state = "passed" if self.child.returncode == 0 else "FAILED"
        else:
            self.state = "left out"
        self.ended.set()

    def stop(self):
        """make stops what it has started."""
        if self.child and self.child.returncode is None:
            self.child.terminate()


def plan():
    """The lanes: (priority, stages in their order) each. No two stages that build the same files are ready at one time."""
    build = Stage("build", ["all"])
    unit = Stage("unit", ["unit"], [build])
    front = [build, unit, Stage("integration", ["integration"], [build]), Stage("e2e", ["e2e"], [build])]
    back, tested = [], []
    for name, san in (("address", ADDRESS), ("thread", THREAD)):
        built = Stage(f"{name}-build", ["all", san], [build])
        back.append(built)
        tested += [Stage(f"{name}-unit", ["unit", san], [built]), Stage(f"{name}-integration", ["integration", san], [built])]
        front.append(Stage(f"{name}-e2e", ["e2e", san], [built]))
    fuzz = Stage("fuzz", ["fuzz", f"FUZZ_SECONDS={FUZZ_SECONDS}"], [build])
    return [(0, front), (BACK_NICE, [*back, Stage("emulated", ["emulated"], [unit]), *tested, fuzz])]


def tell(stage):
    """What it said, and a line about it."""
    if stage.wall:
        print(f"---- stage {stage.name} ----", stage.log.read_text(errors="replace"), sep="\n", end="")
    print(f"stage {stage.name}: {stage.state}" + (f", {stage.wall:.0f} s" if stage.wall else ""), flush=True)


def print_failed(stages):
    for s in stages:
        if s.state == "FAILED":
            lines = s.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            print(f"\n---- the end of {s.log} ----", *lines, sep="\n")


def run_lane(nice, stages, variables, environment, lock):
    for s in stages:
        s.run(nice, variables, environment)
        with lock:
            tell(s)


def print_table(stages, seconds):
    print(f"\n{'stage':22} {'seconds':>8} {'of CPU':>8}")
    for s in stages:
        print(f"{s.name:22} {s.wall:8.0f} {s.cpu:8.0f}" + ("" if s.state == "passed" else f"  {s.state}"))
    print(f"{'all, two lanes':22} {seconds:8.0f} {sum(s.cpu for s in stages):8.0f}")


def main():
    LOGS.mkdir(parents=True, exist_ok=True)
    # Whoever called make gave it jobs that these are not part of.
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    lanes, lock, begin = plan(), threading.Lock(), time.monotonic()
    threads = [threading.Thread(target=run_lane, args=(nice, stages, sys.argv[1:], environment, lock), daemon=True)
               for nice, stages in lanes]
    stages = [s for _, lane in lanes for s in lane]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        for s in stages:
            s.stop()
    print_table(stages, time.monotonic() - begin)
    print_failed(stages)
    return 0 if all(s.state == "passed" for s in stages) else 1


if __name__ == "__main__":
    sys.exit(main())
