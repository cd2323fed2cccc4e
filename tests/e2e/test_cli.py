"""The commands a person and a program use."""

import json
import subprocess

import pytest

from conftest import BIN, MODEL, ROOT, SLOW


def run(*args, stdin=None, check=True):
    done = subprocess.run([str(BIN), *map(str, args)], input=stdin, capture_output=True, text=True, timeout=300 * SLOW)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def test_tokenize_reads_stdin_and_files(tmp_path):
    text = "Hello, world! \u00e9\U0001f468\u200d\U0001f469\u200d\U0001f467 12345"
    ids = json.loads(run("tokenize", "--model", MODEL, stdin=text).stdout)["ids"]
    f = tmp_path / "t.txt"
    f.write_text(text)
    assert json.loads(run("tokenize", "--model", MODEL, "--file", f).stdout)["ids"] == ids
    assert ids[0] == 19556  # "Hello" in SmolLM2's vocabulary


def test_tokenize_parses_control_tokens_only_without_no_special():
    with_special = json.loads(run("tokenize", "--model", MODEL, stdin="<|im_end|>").stdout)["ids"]
    without = json.loads(run("tokenize", "--model", MODEL, "--no-special", stdin="<|im_end|>").stdout)["ids"]
    assert with_special == [2] and len(without) > 1 and 2 not in without


def test_render(tmp_path):
    f = tmp_path / "m.json"
    f.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    text = run("render", "--model", MODEL, "--messages", f).stdout
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert text.startswith("<|im_start|>system\n")


@pytest.mark.parametrize("name", ["qwen3", "qwen3.gguf"])
def test_every_command_takes_a_file_and_a_folder(name, tmp_path):
    model = ROOT / "build/models" / name
    f = tmp_path / "m.json"
    f.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    assert json.loads(run("tokenize", "--model", model, stdin="hi<|im_end|>").stdout)["ids"][-1] == 315
    assert run("render", "--model", model, "--messages", f).stdout.startswith("<|im_start|>user\nhi<|im_end|>")
    assert json.loads(run("inspect", model, "--json").stdout)["architecture"] == "qwen3"
    run("score", "--model", model, "--file", f)
    run("generate", "--model", model, "--prompt", "hi", "--max-tokens", 2)


def test_generate_is_repeatable_on_every_isa_it_has():
    args = ("generate", "--model", MODEL, "--prompt", "The capital of France is", "--max-tokens", 8, "--temperature", 0)
    assert " Paris" in run(*args).stdout
    assert run(*args).stdout == run(*args).stdout
    assert run(*args, "--isa", "scalar").stdout.strip()


def test_score_names_each_token(tmp_path):
    f = tmp_path / "t.txt"
    f.write_text("The capital of France is Paris.")
    got = json.loads(run("score", "--model", MODEL, "--file", f, "--mode", "exact", "--json").stdout)
    assert len(got["ids"]) == len(got["logprobs"]) == len(got["top"])
    assert got["logprobs"][0] is None and all(x < 0 for x in got["logprobs"][1:])
    assert all(len(t) == 5 for t in got["top"][1:])


def test_inspect():
    got = json.loads(run("inspect", MODEL, "--json").stdout)
    assert "llama" in json.dumps(got) and "Q4_1" in json.dumps(got)
    assert "llama" in run("inspect", MODEL).stdout


def test_check_config(tmp_path):
    f = tmp_path / "c.yaml"
    f.write_text("server:\n  prot: 5\n")
    done = run("check-config", f, check=False)
    assert done.returncode == 1 and "prot" in done.stderr


@pytest.mark.parametrize("args", [("tokenize",), ("generate", "--model"), ("score",), ("nothing",), ("key", "fly"),
                                  ("usage", "--format", "xml"), ("bench", "--model", "/nowhere", "--batch", "x")])
def test_usage_errors_exit_2_and_say_so(args):
    done = run(*args, check=False)
    assert done.returncode == 2 and done.stderr.strip()


@pytest.mark.parametrize("command", ["inspect", "tokenize", "generate", "engine"])
def test_a_missing_model_is_one_sentence(command):
    args = {"inspect": ["/nowhere.gguf"], "tokenize": ["--model", "/nowhere.gguf"],
            "generate": ["--model", "/nowhere.gguf", "--prompt", "x", "--max-tokens", "1"],
            "engine": ["--model", "/nowhere.gguf", "--socket", "/tmp/sluice-none.sock"]}[command]
    done = run(command, *args, stdin="x", check=False)
    assert done.returncode == 1 and "/nowhere.gguf" in done.stderr and len(done.stderr.strip().splitlines()) == 1
