import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def starting_point(base: str, adapter: str | None):
    """Base weights, with an earlier stage folded in when there was one."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
        model = model.merge_and_unload(safe_merge=True)
    return model
