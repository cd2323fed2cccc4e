"""The commands a person and a program use."""

import json
import shutil
import subprocess

import pytest

from conftest import BIN, MODEL, MODEL_ID, ROOT, SLOW


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


def test_render_of_nothing_is_nothing(tmp_path):
    (tmp_path / "m.json").write_text("[]")
    (tmp_path / "t.jinja").write_text("{# nothing #}")
    done = run("render", "--model", MODEL, "--template", tmp_path / "t.jinja", "--messages", tmp_path / "m.json")
    assert done.stdout == done.stderr == ""


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
    assert got["architecture"] == "llama" and got["format"] == "gguf" and got["files"] == 1
    assert got["types"]["Q4_1"]["tensors"] == 210
    assert got["file_bytes"] == MODEL.stat().st_size
    text = run("inspect", MODEL).stdout
    assert "llama" in text and "210 tensors" in text and "1 tensor," in text


def test_inspect_knows_a_folder():
    model = ROOT / "build/models/llama3-rope"
    got = json.loads(run("inspect", model, "--json").stdout)
    assert got["format"] == "folder" and got["gguf_version"] is None and got["files"] == 1
    assert got["shape"]["rope_scaling"] == "llama3"
    assert got["parameters"] * 4 < (model / "model.safetensors").stat().st_size
    assert got["chat_template"]["fault"] is None
    assert "Hugging Face folder, 1 file of" in run("inspect", model).stdout


def test_inspect_states_the_memory_of_a_context():
    got = [json.loads(run("inspect", MODEL, "--context", n, "--json").stdout)["memory"] for n in (1600, 3200)]
    for mode, width in (("fast", 2), ("exact", 4)):
        kv = [m[mode]["kv_bytes"] for m in got]
        assert kv == [n * 2 * 30 * 3 * 64 * width for n in (1600, 3200)]
        for m in got:
            assert m[mode]["bytes"] == sum(v for k, v in m[mode].items() if k != "bytes")
    assert got[0]["fast"]["repacked_bytes"] > 0 and got[0]["exact"]["repacked_bytes"] == 0
    done = run("inspect", MODEL, "--context", 8193, check=False)
    assert done.returncode == 1 and "8192" in done.stderr


def test_inspect_says_when_a_template_is_refused(tmp_path):
    model = tmp_path / "m"
    shutil.copytree(ROOT / "build/models/qwen3", model)
    (model / "chat_template.jinja").write_text("{% if %}")
    assert "8 bytes, refused: " in run("inspect", model).stdout
    assert json.loads(run("inspect", model, "--json").stdout)["chat_template"]["fault"]


def test_inspect_prints_no_control_characters(tmp_path):
    f = tmp_path / "m.gguf"
    f.write_bytes((ROOT / "build/models/qwen3.gguf").read_bytes().replace(b"<|eos|>", b"<\x1b[2J\x07>"))
    text = run("inspect", f).stdout
    assert "<\\x1B[2J\\x07>" in text
    assert all(c == "\n" or c.isprintable() for c in text)


def test_check_config(tmp_path):
    f = tmp_path / "c.yaml"
    f.write_text("server:\n  prot: 5\n")
    done = run("check-config", f, check=False)
    assert done.returncode == 1 and "prot" in done.stderr


@pytest.mark.parametrize("field,value", [("min_p", 0.2), ("repetition_penalty", 1.6), ("frequency_penalty", 1.5),
                                         ("presence_penalty", -1.5)])
def test_generate_samples_as_the_api_does(stack, field, value):
    prompt, n, seed = "red, green, blue, red, green, blue,", 12, 11
    common = {"model": MODEL_ID, "prompt": prompt, "max_tokens": n, "seed": seed, "temperature": 0.9}
    plain, want = (stack.post("/v1/completions", {**common, **more}).json()["choices"][0]["text"]
                   for more in ({}, {field: value}))
    got = json.loads(run("generate", "--model", MODEL, "--prompt", prompt, "--max-tokens", n, "--seed", seed,
                         "--temperature", 0.9, f"--{field.replace('_', '-')}", value, "--json").stdout)
    assert got["text"] == want != plain


@pytest.mark.parametrize("option,value", [("min-p", 1.1), ("min-p", "nan"), ("repetition-penalty", 0), ("repetition-penalty", 2.1),
                                          ("frequency-penalty", 2.1), ("presence-penalty", -2.1), ("top-p", 0)])
def test_generate_refuses_what_the_api_refuses(option, value):
    done = run("generate", "--model", MODEL, "--prompt", "x", f"--{option}", value, check=False)
    assert done.returncode == 2 and "not a value that this option takes" in done.stderr


@pytest.mark.parametrize("args", [("tokenize",), ("generate", "--model"), ("score",), ("nothing",), ("key", "fly"),
                                  ("usage", "--format", "xml"), ("bench", "--model", "/nowhere", "--batch", "x")])
def test_usage_errors_exit_2_and_say_so(args):
    done = run(*args, check=False)
    assert done.returncode == 2 and done.stderr.strip()


@pytest.mark.parametrize("command", ["engine", "migrate", "key list", "usage", "inspect", "tokenize", "render",
                                     "generate", "score", "bench"])
def test_an_unknown_option_is_said_in_the_commands_name(command):
    done = run(*command.split(), "--wrong", check=False)
    said = f"sluice {command.split()[0]}: unrecognized option '--wrong'"
    assert done.returncode == 2 and done.stderr.startswith(said), done.stderr


@pytest.mark.parametrize("args,said", [
    (["--check-lockdown"], "--config FILE is missing, or --model PATH and --socket PATH"),
    (["--model", "/nowhere.gguf"], "--socket PATH is missing"),
    (["--socket", "/tmp/sluice-none.sock"], "--model PATH is missing"),
    (["--model-id", "m", "--model", "/nowhere.gguf", "--socket", "/tmp/none.sock"], "--model-id needs --config FILE")])
def test_an_engine_says_what_is_missing(args, said):
    done = run("engine", *args, check=False)
    assert done.returncode == 2 and done.stderr == f"sluice engine: {said}; --help lists the options\n"


@pytest.mark.parametrize("command", ["inspect", "tokenize", "generate", "engine"])
def test_a_missing_model_is_one_sentence(command):
    args = {"inspect": ["/nowhere.gguf"], "tokenize": ["--model", "/nowhere.gguf"],
            "generate": ["--model", "/nowhere.gguf", "--prompt", "x", "--max-tokens", "1"],
            "engine": ["--model", "/nowhere.gguf", "--socket", "/tmp/sluice-none.sock"]}[command]
    done = run(command, *args, stdin="x", check=False)
    assert done.returncode == 1 and "/nowhere.gguf" in done.stderr and len(done.stderr.strip().splitlines()) == 1
