"""Who may include whom (ARCHITECTURE.md): fails with file:line of every include that breaks the rule."""

import re
import subprocess
import sys
from pathlib import PurePosixPath

TOPS = {"app", "api", "auth", "quota", "billing", "engine", "store", "base"}
MAY = {
    "base": {"base"},
    "store": {"base", "store"},
    "auth": {"base", "store", "auth"},
    "quota": {"base", "store", "quota"},
    "billing": {"base", "store", "billing"},
    "engine": {"base", "engine"},
    "api": {"base", "store", "auth", "quota", "billing", "engine", "api"},
    "app": TOPS,
}
# Inside engine/: what each part may see (besides itself and engine/engine.h's users above).
ENGINE = {
    "": {"", "text", "wire", "backend", "model"},
    "text": {"model", "text"},
    "wire": {"", "text", "core", "wire"},
    "backend": {"", "text", "wire", "core", "model", "backend"},
    "model": {"model"},
    "core": {"", "text", "wire", "model", "core"},
    "cpu": {"core", "model", "cpu"},
    "cuda": {"core", "model", "cuda"},
}
# Headers of libraries that belong to one folder.
ONLY = {"h2o.h": {"api"}, "libpq-fe.h": {"store"}, "hiredis": {"store"}, "yaml.h": {"app"}, "pcre2.h": {"engine"}}


def public(path):
    """From outside a folder: FOLDER/FOLDER.h; base/ and store/ are all public; money.h rides in billing.h."""
    p = PurePosixPath(path)
    return p.parts[0] in ("base", "store") or path == f"{p.parts[0]}/{p.parts[0]}.h"


def engine_part(path):
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 else ""


def check(path, line, included, quoted):
    top = PurePosixPath(path).parts[0]
    for name, homes in ONLY.items():
        if included.startswith(name) and top not in homes:
            return f"<{included}> belongs to {', '.join(sorted(homes))}/"
    if not quoted:
        return None
    to = PurePosixPath(included).parts[0]
    if to not in TOPS:
        return f'"{included}": includes are written from the root'
    if to not in MAY[top]:
        return f"{top}/ may not include {to}/"
    if to != top and top != "app" and not public(included):
        return f'"{included}" is not public: include "{to}/{to}.h"'
    if top == to == "engine" and engine_part(included) not in ENGINE[engine_part(path)]:
        return f"engine/{engine_part(path)} may not include engine/{engine_part(included)}"
    return None


def main():
    files = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cu"], capture_output=True, text=True, check=True).stdout.split()
    bad = 0
    for path in files:
        if PurePosixPath(path).parts[0] not in TOPS:
            continue
        own = path[:-2] + ".h"
        first = None
        for n, text in enumerate(open(path), 1):
            m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', text)
            if not m:
                continue
            first = first or m.group(2)
            why = check(path, n, m.group(2), m.group(1) == '"')
            if why:
                print(f"{path}:{n}: {why}")
                bad += 1
        if path.endswith(".c") and own in files and first != own:
            print(f"{path}: its own header must be included first")
            bad += 1
    return bad != 0


sys.exit(main())
