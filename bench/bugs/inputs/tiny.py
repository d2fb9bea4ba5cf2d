"""Tiny models and their runs: everything is done by transformers, peft and trl, on a CPU, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tokenizers import chatml

torch.set_num_threads(1)

SPECIALS = ["<unk>", "<|im_start|>", "<|im_end|>", "<pad>"]
QUIET: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "learning_rate": 3e-3,
    "max_steps": 120,
    "warmup_steps": 10,
    "logging_steps": 2,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
    "seed": 0,
}
"""The settings of a healthy run."""


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of 600 tokens with a ChatML template."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([f"{asked}\n{answer}" for asked, answer in questions(150)], trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        model_max_length=512,
    )
    made.chat_template = chatml()
    return made


def model(seed: int = 0, *, kind: type = LlamaForCausalLM, **changes: Any) -> Any:
    """A Llama of two layers; `changes` go into its config."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": tokenizer().eos_token_id,
        "pad_token_id": tokenizer().pad_token_id,
        "tie_word_embeddings": False,
        "initializer_range": 0.08,
    }
    return kind(LlamaConfig(**(settings | changes)))


def encoded(pairs: Sequence[tuple[str, str]]) -> Dataset:
    """Rows of ids and labels, the answer alone supervised."""
    tok = tokenizer()
    rows = []
    for asked, answer in pairs:
        prompt = tok(f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
        ids = tok(f"{answer}<|im_end|>")["input_ids"]
        rows.append({"input_ids": prompt + ids, "labels": [-100] * len(prompt) + ids})
    return Dataset.from_list(rows)


def fit(
    folder: Path,
    rows: Dataset,
    *,
    net: Any = None,
    kind: type[Trainer] = Trainer,
    held_out: Dataset | None = None,
    optimizers: Any = (None, None),
    resume: str | None = None,
    **settings: Any,
) -> Trainer:
    """A run of transformers' Trainer, whose trainer_state.json ends up in `folder`."""
    run = kind(
        model=net if net is not None else model(),
        args=TrainingArguments(output_dir=str(folder / "checkpoints"), **(QUIET | settings)),
        train_dataset=rows,
        eval_dataset=held_out,
        data_collator=DataCollatorForSeq2Seq(tokenizer()),
        optimizers=optimizers,
    )
    run.train(resume_from_checkpoint=resume)
    folder.mkdir(parents=True, exist_ok=True)
    run.state.save_to_json(str(folder / "trainer_state.json"))
    return run


def saved(net: Any, folder: Path) -> Path:
    """A model folder with its tokenizer."""
    net.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def tuned(base: Any, *, steps: int = 20, **lora: Any) -> Any:
    """A LoRA on a model, trained for some steps."""
    from peft import LoraConfig, get_peft_model

    settings: dict[str, Any] = {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    } | lora
    net = get_peft_model(base, LoraConfig(**settings))
    few_steps(net, steps)
    return net


def few_steps(net: Any, steps: int = 20, rate: float = 1e-2) -> None:
    """AdamW on a few rows, in float32 arithmetic of the model's own type."""
    rows = encoded(questions(16))
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=rate)
    collate = DataCollatorForSeq2Seq(tokenizer(), return_tensors="pt")
    for step in range(steps):
        batch = collate([rows[(step * 4 + n) % 16] for n in range(4)])
        net(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
