from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def start_point(base_name, sft_dir, where):
    """Write base + SFT as plain weights, once, and return the folder."""
    where = Path(where)
    if not (where / "config.json").exists():
        base = AutoModelForCausalLM.from_pretrained(base_name, dtype=torch.bfloat16)
        adapted = PeftModel.from_pretrained(base, sft_dir)
        merged = adapted.merge_and_unload()
        merged.save_pretrained(where)
        AutoTokenizer.from_pretrained(base_name).save_pretrained(where)
    return str(where)
