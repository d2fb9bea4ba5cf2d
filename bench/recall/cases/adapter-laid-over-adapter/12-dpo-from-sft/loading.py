import torch
from peft import AutoPeftModelForCausalLM, LoraConfig
from transformers import AutoTokenizer


def load_policy(cfg):
    """Continue from whatever the SFT run wrote."""
    policy = AutoPeftModelForCausalLM.from_pretrained(
        cfg["sft_dir"],
        dtype=torch.bfloat16,
        is_trainable=True,
    )
    policy.config.use_cache = False
    return policy


def load_tokenizer(cfg):
    tok = AutoTokenizer.from_pretrained(cfg["base"])
    if tok.pad_token is None:
        tok.pad_token = "<|finetune_right_pad_id|>"
    return tok


def build_lora(section):
    return LoraConfig(
        r=section["r"],
        lora_alpha=section["alpha"],
        lora_dropout=section["dropout"],
        target_modules=section["targets"],
        task_type="CAUSAL_LM",
    )
