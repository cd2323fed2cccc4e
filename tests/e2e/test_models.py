"""Models of other formats and architectures than the demo's, served from end to end: small random ones, whose text is
nonsense and whose counts are not (build/models, made by tools/make_model.py)."""

import shutil
import subprocess

import pytest

from conftest import BIN, ROOT, SLOW, Stack, scratch

MODELS = ROOT / "build/models"


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "phi-longrope.gguf", "llama-q4_k.gguf",
                                  "llama-gqa-split/llama-gqa-00001-of-00002.gguf"])
def test_a_model_is_served(name):
    base = scratch("models")
    stack = Stack(base / "var", MODELS / name)
    try:
        stack.start()
        models = stack.get("/v1/models").json()["data"]
        assert len(models) == 1
        r = stack.chat("Hello, world.", model=models[0]["id"], ignore_eos=True)
        assert r.status_code == 200, r.text
        usage = r.json()["usage"]
        assert usage["completion_tokens"] == 8 and usage["prompt_tokens"] > 8
        row, = stack.wait_rows(1)
        assert (row["prompt_tokens"], row["output_tokens"]) == (usage["prompt_tokens"], 8)
        again = stack.chat("Hello, world.", model=models[0]["id"], ignore_eos=True)
        assert again.json()["choices"][0]["message"] == r.json()["choices"][0]["message"]
    finally:
        stack.stop()
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.parametrize("text, words", [
    (b'{"architectures": ["MambaForCausalLM"], "model_type": "mamba"}', ["MambaForCausalLM"]),
    (b'{"architectures": ["LlamaForCausalLM"', ["config.json"]),
])
def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path, text, words):
    (tmp_path / "config.json").write_bytes(text)
    done = subprocess.run([str(BIN), "inspect", str(tmp_path)], capture_output=True, text=True, timeout=30 * SLOW)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    for w in words:
        assert w in done.stderr
