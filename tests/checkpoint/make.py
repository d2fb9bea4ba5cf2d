"""Checkpoints made by transformers and peft: a tiny Llama, two training steps, saved as people save them."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

TOKENIZER = Path(str(resources.files("truetune.demo"))) / "tokenizer"
VOCABULARY = 2048


def llama(**settings: Any) -> Any:
    """A Llama of two layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(int(settings.pop("seed", 0)))
    config = LlamaConfig(
        **{
            **{
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
            },
            **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
            **{
                "bos_token_id": 0,
                "eos_token_id": 3,
                "pad_token_id": 1,
                "tie_word_embeddings": False,
            },
            **settings,
        }
    )
    return LlamaForCausalLM(config)


def base(folder: Path, *, dtype: str = "float32", **settings: Any) -> Path:
    """A base model, with the demo's tokenizer."""
    import torch

    llama(**settings).to(getattr(torch, dtype)).save_pretrained(folder)
    with_tokenizer(folder)
    return folder


def with_tokenizer(folder: Path) -> Path:
    """Put the demo's tokenizer into a folder."""
    for path in TOKENIZER.iterdir():
        if path.name not in ("config.json", "generation_config.json"):
            shutil.copy(path, folder / path.name)
    return folder


def steps(model: Any, count: int = 2, lr: float = 1e-2) -> Any:
    """Train on random tokens."""
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr)
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        ids = torch.randint(0, 300, (2, 16), generator=generator)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def adapter(
    base_folder: Path, folder: Path, *, dtype: str = "float32", count: int = 2, **settings: Any
) -> Path:
    """A LoRA trained for two steps; `merged=True` merges it into the base first."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    merged, lr = settings.pop("merged", False), settings.pop("lr", 1e-2)
    model = AutoModelForCausalLM.from_pretrained(base_folder, dtype=getattr(torch, dtype))
    torch.manual_seed(1)
    config = LoraConfig(
        **{"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **settings}
    )
    model = steps(get_peft_model(model, config), count, lr)
    if merged:
        model = model.merge_and_unload()
    model.save_pretrained(folder)
    with_tokenizer(folder)
    return folder


def edit(path: Path, **changes: Any) -> None:
    """Change a JSON file key by key; None deletes."""
    value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    value = {key: item for key, item in {**value, **changes}.items() if item is not None}
    path.write_text(json.dumps(value), encoding="utf-8")
