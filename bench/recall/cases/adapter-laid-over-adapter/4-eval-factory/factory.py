import torch
from omegaconf import OmegaConf
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


def read_config(path):
    return OmegaConf.load(path)


def backbone(cfg):
    return AutoModelForCausalLM.from_pretrained(
        cfg.model.name, dtype=getattr(torch, cfg.model.dtype), attn_implementation=cfg.model.attention
    )


def tokenizer(cfg, side):
    return AutoTokenizer.from_pretrained(cfg.model.name, padding_side=side)


def wrap(model, cfg):
    if not cfg.lora.enabled:
        return model
    spec = OmegaConf.to_container(cfg.lora.spec, resolve=True)
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **spec))


def with_trained_adapter(model, folder):
    return PeftModel.from_pretrained(model, folder)
