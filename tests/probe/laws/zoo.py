"""Tiny models of real architectures, and trials on them."""

from __future__ import annotations

from typing import Any

import peft
import torch
import transformers

from tests.auditing import tiny
from truetune.probe.measuring.law_input_and_result_types import Trial

TOKENIZER = tiny.tokenizer()
ARCHITECTURES = ("llama", "qwen3", "gemma3", "mistral", "gpt2", "mixtral", "qwen3_moe", "phi3")


def build(
    name: str, dtype: torch.dtype = torch.float32, lora: bool = False, **settings: Any
) -> Any:
    """Two layers of width 32, with windows of 16 tokens where the architecture has any."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    own: dict[str, dict[str, Any]] = {
        "gemma3": {
            "head_dim": 8,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "gemma3_text": {},
        "qwen3": {"head_dim": 8},
        "mistral": {"sliding_window": 16},
        "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
        "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
        "qwen3_moe": {
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
    }
    special = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": len(TOKENIZER),
    }
    kind = "gemma3_text" if name == "gemma3" else name
    given = ({} if name == "gpt2" else shape) | own.get(name, {}) | special | settings
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(kind, **given)
    ).to(dtype)
    if lora:
        config = peft.LoraConfig(target_modules="all-linear", r=4, init_lora_weights=False)
        return peft.get_peft_model(model, config)
    return model


def padded(model: Any, count: int = 3, **trial: Any) -> Trial:
    """A trial on one padded batch of chats."""
    rows = tiny.encoded(tiny.chats(count))
    collate = transformers.DataCollatorForSeq2Seq(TOKENIZER)
    return Trial(
        model, [dict(collate(rows))], [rows], collate=collate, tokenizer=TOKENIZER, **trial
    )


def packed(model: Any, *keys: str, **trial: Any) -> Trial:
    """A trial on one line of three documents, told apart by these keys."""
    rows = tiny.encoded(tiny.chats(3))
    return Trial(
        model, [pack(rows, *keys or ("position_ids",))], [rows], tokenizer=TOKENIZER, **trial
    )


def pack(rows: list[dict[str, Any]], *keys: str) -> dict[str, Any]:
    """One line; `keys` of position_ids, mask_numbers, seq_idx, cu_seqlens, mask_4d, mask_4d_float."""
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    document = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    mask = (document[:, None] == document[None]).tril()[None, None]
    known = {
        "position_ids": {
            "position_ids": torch.cat([torch.arange(n) for n in lengths.tolist()])[None]
        },
        "mask_numbers": {"attention_mask": document[None] + 1},
        "mask_of_ones": {"attention_mask": torch.ones_like(document)[None]},
        "seq_idx": {"seq_idx": document[None].int()},
        "cu_seqlens": {
            "cu_seq_lens_q": torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).int()
        },
        "mask_4d": {"attention_mask": mask},
        "mask_4d_float": {"attention_mask": torch.where(mask, 0.0, torch.finfo(torch.float32).min)},
    }
    made = {
        key: torch.tensor([[one for row in rows for one in row[key]]])
        for key in ("input_ids", "labels")
    }
    for key in keys:
        made |= known[key]
    return made
