"""The one vocabulary of all test models: byte-level BPE (GPT-2's way of writing bytes as characters) of 256 bytes, some
merges, and control tokens; as GGUF metadata and as the files of a Hugging Face folder."""

WORDS = "Ġthe Ġand Ġof Ġin Ġto ing er on Ġmodel at Ġwas ion es Ġthat ed Ġtoken al Ġfor Ġwith Ġwhich Ġprompt ment able"
N_MERGES = 56
CONTROL = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>", "<|pad|>", "<|tool|>", "<|think|>", "<|end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PATTERN_NAME = "gpt-2"
NORMAL, CONTROL_TYPE = 1, 3


def byte_characters():
    """Printable Latin-1 bytes stand for themselves, the others for U+0100 and on, in order."""
    spare = iter(range(0x100, 0x200))
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def merges():
    """Each word is grown from its first character; N_MERGES pairs, none twice."""
    pairs = []
    for word in WORDS.split():
        for i in range(1, len(word)):
            pair = (word[:i], word[i])
            if pair not in pairs:
                pairs.append(pair)
    assert len(pairs) >= N_MERGES, len(pairs)
    return pairs[:N_MERGES]


MERGES = merges()
TOKENS = byte_characters() + [a + b for a, b in MERGES] + CONTROL
SIZE = len(TOKENS)
BOS, EOS, EOT, PAD = (TOKENS.index(t) for t in ("<|bos|>", "<|eos|>", "<|im_end|>", "<|pad|>"))


def gguf_metadata():
    """(key, kind, value) as gguf_file.write takes them."""
    types = [CONTROL_TYPE if t in CONTROL else NORMAL for t in TOKENS]
    return [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", PATTERN_NAME),
        ("tokenizer.ggml.tokens", "[str]", TOKENS),
        ("tokenizer.ggml.token_type", "[i32]", types),
        ("tokenizer.ggml.merges", "[str]", [f"{a} {b}" for a, b in MERGES]),
        ("tokenizer.ggml.bos_token_id", "u32", BOS),
        ("tokenizer.ggml.eos_token_id", "u32", EOS),
        ("tokenizer.ggml.eot_token_id", "u32", EOT),
        ("tokenizer.ggml.add_bos_token", "bool", False),
        ("tokenizer.chat_template", "str", CHAT_TEMPLATE),
    ]


def added_token(i):
    return {"id": i, "content": TOKENS[i], "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def hf_files():
    """File name to JSON value."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(i) for i in range(SIZE - len(CONTROL), SIZE)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {t: i for i, t in enumerate(TOKENS[: SIZE - len(CONTROL)])},
            "merges": [f"{a} {b}" for a, b in MERGES],
        },
    }
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": TOKENS[BOS], "eos_token": TOKENS[EOS],
            "pad_token": TOKENS[PAD], "add_bos_token": False, "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": [EOS, EOT], "pad_token_id": PAD},
    }
