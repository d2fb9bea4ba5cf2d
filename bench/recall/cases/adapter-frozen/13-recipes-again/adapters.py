import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def open_adapter(base_name, adapter_dir):
    base = AutoModelForCausalLM.from_pretrained(base_name, dtype=torch.bfloat16)
    return PeftModel.from_pretrained(base, adapter_dir)


def wake(model):
    """Lets the loaded LoRA matrices learn again; the base stays as it is."""
    n = 0
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.requires_grad_(True)
            n += weight.numel()
    if n == 0:
        raise RuntimeError("no LoRA weights found")
    model.print_trainable_parameters()
    return model
