from pathlib import Path

import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def is_adapter_dir(path: str) -> bool:
    return (Path(path) / "adapter_config.json").exists()


def load_for_training(path: str, rank: int = 16):
    """Accepts a base model id or the folder of an earlier run."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    if is_adapter_dir(path):
        model = AutoPeftModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    else:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
        model = get_peft_model(
            model,
            LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules=TARGETS, task_type="CAUSAL_LM"),
        )
    model.config.use_cache = False
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    return model, tokenizer
