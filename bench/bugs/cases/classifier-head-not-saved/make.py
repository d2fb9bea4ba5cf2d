from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaForSequenceClassification

from bench.bugs.inputs.tiny import model, saved


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    config = model().config
    config.num_labels = 2
    torch.manual_seed(0)
    base = saved(LlamaForSequenceClassification(config), folder / "base")
    net = LlamaForSequenceClassification.from_pretrained(base)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="SEQ_CLS")
    net = get_peft_model(net, lora)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.02)
    net.save_pretrained(folder / "adapter")
    if broken:
        file = folder / "adapter" / "adapter_model.safetensors"
        kept = {name: tensor for name, tensor in load_file(file).items() if "lora_" in name}
        save_file(kept, file, metadata={"format": "pt"})
