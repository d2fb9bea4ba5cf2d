"""Makes the demo's tokenizer and data: `python -m truetune.demo.make`.

Running it again gives the same bytes. `chat_template.jinja` is written by hand and left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

HERE = Path(__file__).parent
END_OF_TEXT, PAD, START, END = SPECIAL = ("<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 2000
MAX_LENGTH = 512


def train(texts: Iterator[str]) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer of at most VOCABULARY tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_files(tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    """The JSON files of a tokenizer folder."""
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL}
    named = {"eos_token": END, "pad_token": PAD}
    return {
        "tokenizer.json": json.loads(tokenizer.to_str()),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": MAX_LENGTH,
            "padding_side": "right",
            "clean_up_tokenization_spaces": False,
            **named,
        },
        "special_tokens_map.json": named,
        "generation_config.json": {"eos_token_id": [ids[END], ids[END_OF_TEXT]], "pad_token_id": ids[PAD]},
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
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


def write_tokenizer(folder: Path, texts: Iterator[str]) -> None:
    for name, content in tokenizer_files(train(texts)).items():
        compact = name == "tokenizer.json"
        text = json.dumps(content, ensure_ascii=False, indent=None if compact else 2,
                          separators=(",", ":") if compact else None)
        (folder / name).write_text(text + "\n", encoding="utf-8")
