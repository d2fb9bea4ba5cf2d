"""Makes the tokenizer and the data that the demo ships: `python -m truetune.demo.make_demo_data`.

Running it again gives the same bytes. Only `chat_template.jinja` is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import tokenizers

from truetune.demo import MAX_LENGTH
from truetune.demo.make_chats import Row, make_chats
from truetune.demo.plant_faults import plant_faults
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import parse_json

HERE = Path(__file__).parent
END_OF_TEXT, PAD, START, END = SPECIAL = ("<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>")
# Most of them stay without a fault, as in real data.
ROWS = 200
# Small, so that the model of the proof is: its embedding is most of it.
VOCABULARY_SIZE = 2000


def make_demo_data(folder: Path) -> None:
    """Write `data/` and `tokenizer/` into the folder."""
    rows = make_chats(ROWS, Random(0))
    _write_lines(folder / "data" / "support-chat.jsonl", *map(_json_line, rows))
    _write_lines(
        folder / "data" / "support-chat-broken.jsonl",
        *map(_json_line, plant_faults(rows, Random(1))),
    )
    prose = (HERE / "prose.txt").read_text("utf-8").splitlines()
    tokenizer = train_tokenizer([*prose, *(text for row in rows for text in _row_texts(row))])
    _write_lines(
        folder / "tokenizer" / "tokenizer.json",
        json.dumps(parse_json(tokenizer.to_str(), MODEL_FILE), separators=(",", ":")),
    )
    for name, content in tokenizer_json_configs_by_name(tokenizer).items():
        _write_lines(folder / "tokenizer" / name, json.dumps(content, indent=2))


def train_tokenizer(texts: Iterable[str]) -> tokenizers.Tokenizer:
    """Train a byte-level BPE tokenizer of at most VOCABULARY tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_json_configs_by_name(tokenizer: tokenizers.Tokenizer) -> dict[str, dict[str, Any]]:
    """The JSON files of the tokenizer's folder besides tokenizer.json, by name."""
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL}
    named = {"eos_token": END, "pad_token": PAD}
    return {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **named,
            "padding_side": "right",
            "model_max_length": MAX_LENGTH,
            "clean_up_tokenization_spaces": False,
        },
        "special_tokens_map.json": named,
        "generation_config.json": {
            "eos_token_id": [ids[END], ids[END_OF_TEXT]],
            "pad_token_id": ids[PAD],
        },
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            # Rounded up, as real models do: the embedding has rows that no token has.
            "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64,
            "max_position_embeddings": MAX_LENGTH,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": ids[END],
            "pad_token_id": ids[PAD],
        },
    }


def _row_texts(row: Row) -> list[str]:
    """The texts of a row that the tokenizer is trained on."""
    tools = [json.dumps(row["tools"])] if "tools" in row else []
    return tools + [message["role"] + "\n" + str(message["content"]) for message in row["messages"]]


def _json_line(row: Row) -> str:
    """A row as a line of JSONL."""
    return json.dumps(row, ensure_ascii=False)


def _write_lines(path: Path, *lines: str) -> None:
    """Write lines as bytes and not as text: Windows would write other line ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    make_demo_data(HERE)
