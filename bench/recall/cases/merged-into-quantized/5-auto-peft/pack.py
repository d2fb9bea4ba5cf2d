import shutil
from pathlib import Path

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer, BitsAndBytesConfig

LOAD = {
    "dtype": torch.bfloat16,
    "device_map": {"": 0},
    "quantization_config": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    ),
}


class Packer:
    def __init__(self, runs: Path, target: Path):
        self.runs, self.target = runs, target

    def newest(self):
        found = [p for p in self.runs.glob("checkpoint-*") if (p / "adapter_config.json").exists()]
        return max(found, key=lambda p: int(p.name.split("-")[1]))

    def join(self, folder):
        model = AutoPeftModelForCausalLM.from_pretrained(folder, **LOAD)
        return model.merge_and_unload()

    def __call__(self):
        folder = self.newest()
        print("taking", folder)
        if self.target.exists():
            shutil.rmtree(self.target)
        self.join(folder).save_pretrained(self.target)
        AutoTokenizer.from_pretrained(folder).save_pretrained(self.target)


if __name__ == "__main__":
    Packer(Path("out/qlora-3b"), Path("release/assistant-3b"))()
