"""Calls and types that the house does without; fails with file:line."""

import re
import subprocess
import sys

# pattern, where (path prefix, "" everywhere), why
RULES = [
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca)\s*\(", "", "unbounded or stateful: use buf_* or snprintf"),
    (r"\b(atoi|atol|atoll|atof)\s*\(", "", "no errors: use strtoll and check"),
    (r"\b(rand|srand|random|drand48)\s*\(", "", "use random_bytes"),
    (r"\b(localtime|gmtime|asctime|ctime|strerror_l)\s*\(", "", "not safe with threads"),
    (r"\b(system|popen)\s*\(", "", "no shell: posix_spawn or fork and exec"),
    (r"\b(sleep|usleep)\s*\(", "", "nothing sleeps on a loop; use a timer or a condition"),
    (r"\b(float|double)\b", "quota/", "money and token counts are integers"),
    (r"\b(float|double)\b", "billing/", "money and token counts are integers"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "", "no unfinished work in the tree"),
    (r"#\s*pragma\s+once", "", "include guards"),
]
STRIP = re.compile(r'"(?:\\.|[^"\\])*"|//.*')


def strip_comments(text):
    """Blanks /* */ comments, keeping line numbers; TODO words in them still count."""
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"(?!TODO|FIXME|XXX|HACK)\w|[^\w\n]", " ", m.group(0))
                  if not re.search(r"TODO|FIXME|XXX|HACK", m.group(0)) else m.group(0), text, flags=re.S)


def main():
    files = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cu", "*.lua"], capture_output=True, text=True, check=True).stdout.split()
    bad = 0
    for path in files:
        if path.startswith("tests/"):
            continue
        text = strip_comments(open(path, errors="replace").read())
        for n, line in enumerate(text.split("\n"), 1):
            line = STRIP.sub('""', line)
            for pattern, where, why in RULES:
                if path.startswith(where) and re.search(pattern, line):
                    print(f"{path}:{n}: {line.strip()[:60]}: {why}")
                    bad += 1
    return bad != 0


sys.exit(main())
