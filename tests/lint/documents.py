"""The documents match the tree: ARCHITECTURE's layout, docs/config.md, links to files, files that are tracked."""

import re
import subprocess
import sys
from pathlib import Path


def tracked():
    return subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def layout(text):
    """Folders named in the first fenced block after "## Layout": `name/` at the start of a line, indented for children."""
    block = re.search(r"## Layout\n.*?```\n(.*?)```", text, re.S).group(1)
    names, stack = set(), []
    for line in block.split("\n"):
        m = re.match(r"( *)([\w.-]+)/", line)
        if not m:
            continue
        depth = len(m.group(1)) // 2
        stack = stack[:depth] + [m.group(2)]
        names.add("/".join(stack))
    return names


def check_layout(files):
    said = layout(Path("ARCHITECTURE.md").read_text())
    have = set()
    for f in files:
        parts = Path(f).parts[:-1]
        if parts and parts[0] not in (".ci",):
            have.add(parts[0])
        if len(parts) > 1 and parts[0] in ("engine", "app", "tests"):
            have.add("/".join(parts[:2]))
    return ([f"ARCHITECTURE.md names {d}/, which is not there" for d in sorted(said - have)] +
            [f"ARCHITECTURE.md's layout lacks {d}/" for d in sorted(have - said)])


def check_config(binary):
    want = subprocess.run([binary, "check-config", "--keys"], capture_output=True, text=True)
    if want.returncode:
        return [f"{binary} check-config --keys failed: {want.stderr}"]
    if want.stdout.strip() not in Path("docs/config.md").read_text():
        return ["docs/config.md lacks what `sluice check-config --keys` prints: paste it in"]
    return []


def check_links(files):
    bad = []
    for f in files:
        if not f.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", Path(f).read_text()):
            if not (Path(f).parent / target).exists():
                bad.append(f"{f}: link to {target}, which is not there")
    return bad


def check_private(files):
    """Nothing of one machine, and no registry's host, in the tree."""
    words = re.compile(r"/work/|pypi\.org|deb\.debian\.org|files\.pythonhosted|registry\.npmjs")
    bad = []
    for f in files:
        if f == "tests/lint/documents.py" or not Path(f).is_file() or Path(f).stat().st_size > 4_000_000:
            continue
        text = Path(f).read_bytes().decode("utf-8", errors="ignore")
        for m in words.finditer(text):
            bad.append(f"{f}: says {m.group(0)}")
            break
    return bad


files = tracked()
errors = check_layout(files) + check_config(sys.argv[1]) + check_links(files) + check_private(files)
print("\n".join(errors), end="\n" if errors else "")
sys.exit(bool(errors))
