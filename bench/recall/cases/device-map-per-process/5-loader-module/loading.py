from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class LoadSpec:
    name: str
    dtype: torch.dtype = torch.bfloat16
    placement: str = "balanced"
    rank: int = 16


def load(spec: LoadSpec):
    tok = AutoTokenizer.from_pretrained(spec.name)
    model = AutoModelForCausalLM.from_pretrained(spec.name, dtype=spec.dtype, device_map=spec.placement)
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(r=spec.rank, lora_alpha=2 * spec.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    return model, tok
