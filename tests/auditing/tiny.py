"""Small real trainers over the demo tokenizer, for tests and rule pages."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainingArguments,
)
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from truetune.demo import TOKENIZER

FRUITS = (
    "apples",
    "pears",
    "plums",
    "figs",
    "limes",
    "dates",
    "melons",
    "kiwis",
    "grapes",
    "mangos",
    "peaches",
    "nuts",
)


def tokenizer() -> PreTrainedTokenizerFast:
    """The demo's tokenizer: ChatML template, its own pad token."""
    loaded = AutoTokenizer.from_pretrained(str(TOKENIZER))
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


def model(rows: int = 0, *, seed: int = 0, **settings: Any) -> Any:
    """A Llama of two layers with `rows` embedding rows (those of the demo tokenizer when 0).

    A PreTrainedModel; typed as Any, since the annotation of its `to` refuses a dtype.
    """
    torch.manual_seed(seed)
    return LlamaForCausalLM(_shape(rows, settings))


def reward_model(*, seed: int = 0, **settings: Any) -> Any:
    """A Llama of two layers that scores a text, over the demo tokenizer."""
    torch.manual_seed(seed)
    return LlamaForSequenceClassification(_shape(0, {"num_labels": 1, **settings}))


def _shape(rows: int, settings: dict[str, Any]) -> LlamaConfig:
    """The configuration of a Llama of two layers."""
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }
    return LlamaConfig(vocab_size=rows or len(tokenizer()), **{**shape, **settings})


def chats(count: int = 8, turns: int = 1) -> list[dict[str, Any]]:
    """Rows of `messages`, all different, of unequal length."""
    made = []
    for i in range(count):
        messages = []
        for turn in range(turns):
            fruit = FRUITS[(i + turn) % len(FRUITS)]
            messages.append(
                {"role": "user", "content": f"How many {fruit} are in box {i}, on shelf {turn}?"}
            )
            messages.append(
                {
                    "role": "assistant",
                    "content": f"There are {i + 3} {fruit} in it" + " today" * (i % 4),
                }
            )
        made.append({"messages": messages})
    return made


def pairs(count: int = 8) -> list[dict[str, Any]]:
    """Preference rows of messages."""
    return [
        {
            "prompt": [{"role": "user", "content": f"How many {FRUITS[i % 12]} are in box {i}?"}],
            "chosen": [
                {"role": "assistant", "content": f"There are {i + 3} {FRUITS[i % 12]} in it."}
            ],
            "rejected": [{"role": "assistant", "content": "I will not count them for you."}],
        }
        for i in range(count)
    ]


def arguments(kind: type[TrainingArguments] = TrainingArguments, **settings: Any) -> Any:
    """Training arguments for a CPU: a folder of its own, no tracker, batches of 2."""
    given = {
        "output_dir": tempfile.mkdtemp(),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "per_device_train_batch_size": 2,
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
    }
    return kind(**{**given, **settings})


def sft(
    rows: list[dict[str, Any]] | None = None,
    model_: Any = None,
    tokenizer_: Any = None,
    **settings: Any,
) -> Any:
    """TRL's SFTTrainer; `settings` are SFTConfig's."""
    return SFTTrainer(
        model_ or model(),
        args=arguments(SFTConfig, **settings),
        train_dataset=Dataset.from_list(rows or chats()),
        processing_class=tokenizer_ or tokenizer(),
    )


def dpo(rows: list[dict[str, Any]] | None = None, model_: Any = None, **settings: Any) -> Any:
    """TRL's DPOTrainer."""
    policy = model_ or model()
    return DPOTrainer(
        policy,
        ref_model=None if hasattr(policy, "peft_config") else copy.deepcopy(policy),
        args=arguments(DPOConfig, **settings),
        train_dataset=Dataset.from_list(rows or pairs()),
        processing_class=tokenizer(),
    )


def encoded(chats_: list[dict[str, Any]], tokenizer_: Any = None) -> Any:
    """Rows of input_ids and labels, masked as they should be: answers and their stop tokens alone.

    A list; typed as Any, since DataLoader takes lists and its annotation does not say so.
    """
    made: list[dict[str, Any]] = []
    tok: Any = tokenizer_ or tokenizer()
    for row in chats_:
        ids: list[int] = []
        labels: list[int] = []
        for i, message in enumerate(row["messages"]):
            if message["role"] == "assistant":
                prompt = tok.apply_chat_template(
                    row["messages"][:i], add_generation_prompt=True, return_dict=False
                )
                until = tok.apply_chat_template(row["messages"][: i + 1], return_dict=False)
                stop = max(j for j, id in enumerate(until) if id == tok.eos_token_id) + 1
                labels += [-100] * (len(prompt) - len(labels)) + until[len(prompt) : stop]
                ids = until
        made.append({"input_ids": ids, "labels": labels + [-100] * (len(ids) - len(labels))})
    return made


def scratch() -> Path:
    """An empty folder."""
    return Path(tempfile.mkdtemp())
