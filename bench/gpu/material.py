"""What the GPU bench works on, all made here from a seed: a tokenizer, chats, their encodings, and small models.

The tokenizer is a byte-level BPE trained on the chats themselves, so that nothing has to be fetched. Words are made of
syllables: random letters would give one token each, and rows of nothing but such tokens are unlike any text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.size import Family

SEED = 25
SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "ro",
    "su",
    "zan",
    "mer",
    "tol",
)
# Ten times the usual: with 0.02 a small random model hardly attends, and documents that see each other would change no
# loss by more than rounding does.
WIDE_SPREAD = 0.2
# Logits near 1: with those of the wide spread, near 20, one rounding in bfloat16 is a tenth of a nat.
NARROW_SPREAD = 0.05
VOCABULARY_WORDS = 3000
TOKENIZER_IDS = 4096
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, as Qwen's models have it"""


@dataclass(frozen=True)
class Material:
    """Rows and their tokenizer, on disk and in memory."""

    folder: Path
    """Of the tokenizer"""
    tokenizer: Any
    """transformers' PreTrainedTokenizerFast"""
    alone: list[dict[str, Any]]
    """One example a row: input_ids, labels, line"""
    packed: list[dict[str, Any]]
    """The same examples in truetune's packs: input_ids, labels, position_ids, seq_lengths, line"""


def make_material(work: Path, *, chats: int, max_length: int, answer_words: int = 60) -> Material:
    """Make chats, train a tokenizer on them, and let truetune encode them alone and packed.

    Args:
        work: an empty folder for all files.
        chats: rows.
        max_length: tokens of a packed row.
        answer_words: mean length of an answer; lengths differ by a factor of ten.
    """
    import truetune

    rows = list(_chats(chats, answer_words))
    data = work / "chats.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    folder = work / "tokenizer"
    tokenizer = _train_tokenizer(folder, rows)
    encodings = []
    for packing in ("none", "best-fit"):
        encoded = truetune.encode(
            str(data),
            str(folder),
            work / f"encoded-{packing}",
            max_length=max_length,
            packing=packing,
            jobs=1,
        )
        encodings.append(list(encoded.dataset()))
    return Material(folder, tokenizer, *encodings)


def make_questions(work: Path, *, count: int) -> tuple[Path, Any]:
    """Chats as a file, and a tokenizer trained on them: what a training by rewards takes.

    Args:
        work: an empty folder.
        count: chats; what stands before the last answer of each is a prompt.

    Returns:
        The file, and transformers' PreTrainedTokenizerFast.
    """
    rows = list(_chats(count, answer_words=30))
    data = work / "chats.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return data, _train_tokenizer(work / "tokenizer", rows)


def small_config(
    family: Family, ids: int, *, hidden: int, layers: int, spread: float = WIDE_SPREAD
) -> Any:
    """A config of transformers for a small model in the shape of a family, over `ids` ids.

    `spread` is the standard deviation of its weights.
    """
    from transformers import LlamaConfig, Qwen3Config

    shape: dict[str, Any] = {
        "vocab_size": ids,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "max_position_embeddings": 4096,
        "initializer_range": spread,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
    }
    return (LlamaConfig if family == "llama" else Qwen3Config)(**shape)


def make_small_model(config: Any, device: str, dtype: Any, attention: str) -> Any:
    """A model with weights from the seed: the same numbers on every device."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    # Made on the CPU and moved: each device has a random generator of its own.
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    return model.to(device)


def _chats(count: int, answer_words: int) -> Iterator[dict[str, Any]]:
    """Rows of one or two questions and answers."""
    random = np.random.default_rng(SEED)
    words = [
        "".join(random.choice(SYLLABLES, size=random.integers(1, 4)))
        for _ in range(VOCABULARY_WORDS)
    ]
    # Zipf's law, as in language: a few words are most of a text.
    weights = 1 / np.arange(1, len(words) + 1)
    weights /= weights.sum()

    def text(mean: int) -> str:
        length = max(3, int(random.lognormal(np.log(mean), 0.7)))
        return " ".join(random.choice(words, size=min(length, 8 * mean), p=weights))

    for _ in range(count):
        messages = []
        for _ in range(int(random.integers(1, 3))):
            messages.append({"role": "user", "content": f"{text(12)}?"})
            messages.append({"role": "assistant", "content": f"{text(answer_words)}."})
        yield {"messages": messages}


def _train_tokenizer(folder: Path, rows: list[dict[str, Any]]) -> Any:
    """A byte-level BPE with ChatML's control tokens and a pad token of its own, saved into `folder`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_IDS,
        special_tokens=["<|pad|>", "<|im_end|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (message["content"] for row in rows for message in row["messages"])
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(str(folder))
    return tokenizer
