import json
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_run(folder):
    """Opens a run folder: full weights, or an adapter beside its base."""
    folder = Path(folder)
    tok = AutoTokenizer.from_pretrained(folder, padding_side="left")
    adapter_file = folder / "adapter_config.json"
    source = json.loads(adapter_file.read_text())["base_model_name_or_path"] if adapter_file.exists() else folder
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16, device_map="auto")
    if adapter_file.exists():
        model = PeftModel.from_pretrained(model, folder)
    return model.eval(), tok
