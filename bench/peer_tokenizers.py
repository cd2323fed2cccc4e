#!/usr/bin/env python3
"""How fast text is tokenized on one thread: ours (sluice tokenize --bench) and Hugging Face's tokenizers, built from the
same vocabulary, on the same megabytes of English, code and CJK, one after the other. The ids must be the same.

    VENV/bin/python bench/peer_tokenizers.py build/release/sluice MODEL.gguf...

VENV needs tokenizers and gguf. English is Python's own documentation, code is this repository's C, CJK are the
translations into Chinese, Japanese and Korean that the machine has. Both sides take the best of a few runs; the peer
keeps its cache of words from run to run, ours begins each with an empty one.
"""

import gettext
import json
import os
import pathlib
import pydoc_data.topics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "tools"))
import oracle_vocabs  # noqa: E402

MEGABYTE, RUNS = 1 << 20, 3


def english():
    return "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))


def code():
    folders = ["api", "app", "auth", "base", "billing", "engine", "quota", "store", "tests"]
    return "".join(p.read_text() for f in folders for p in sorted((root / f).rglob("*.[ch]")))


def cjk():
    found = []
    for language in ["zh_CN", "ja", "ko", "zh_TW"]:
        for path in sorted(pathlib.Path("/usr/share/locale").glob(f"{language}/LC_MESSAGES/*.mo")):
            with path.open("rb") as f:
                catalogue = gettext.GNUTranslations(f)._catalog
            found += [s for s in catalogue.values() if isinstance(s, str) and not s.isascii()]
    return "\n".join(found)


def cut(text):
    """The first megabyte, repeated if there is less."""
    while 0 < len(text.encode()) < MEGABYTE:
        text += text
    return text.encode()[:MEGABYTE].decode(errors="ignore")


def ours(binary, model, file):
    command = [binary, "tokenize", "--model", model, "--file", file, "--no-special"]
    speed = json.loads(subprocess.check_output([*command, "--bench"]))
    return json.loads(subprocess.check_output(command))["ids"], speed["bytes"] / speed["seconds"] / 1e6


def peer(reference, text):
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        encoding = reference.encode(text)
        best = min(best, time.perf_counter() - start)
    return encoding, len(text.encode()) / best / 1e6


def main():
    binary, models = sys.argv[1], sys.argv[2:]
    print("| vocabulary | text | ours, MB/s | peer, MB/s | ratio | same ids |\n|---|---|---|---|---|---|")
    for model in models:
        reference = oracle_vocabs.reference(oracle_vocabs.Vocabulary(model))
        for make in (english, code, cjk):
            text = cut(make())
            if not text:
                continue
            with tempfile.NamedTemporaryFile() as f:
                f.write(text.encode())
                f.flush()
                ids, speed = ours(binary, model, f.name)
            want, peer_speed = peer(reference, text)
            name = pathlib.Path(model).stem.removeprefix("ggml-vocab-")
            same = "yes" if ids == want else "no"
            print(f"| {name} | {make.__name__} | {speed:.1f} | {peer_speed:.1f} | {speed / peer_speed:.1f} | {same} |")


if __name__ == "__main__":
    main()
