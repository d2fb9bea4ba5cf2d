import sys

import torch
import yaml
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def read(path):
    with open(path) as fh:
        return yaml.safe_load(fh)


def load_policy(model_cfg):
    base = AutoModelForCausalLM.from_pretrained(model_cfg["base"], dtype=torch.bfloat16)
    return PeftModel.from_pretrained(base, model_cfg["sft_adapter"], **model_cfg["adapter_kwargs"])


def main():
    cfg = read(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(cfg["model"]["base"])
    model = load_policy(cfg["model"])
    model.print_trainable_parameters()

    data = load_dataset("json", data_files=cfg["data"]["file"], split="train")
    data = data.select_columns(["prompt", "chosen", "rejected"])
    data = data.train_test_split(test_size=0.05, seed=cfg["seed"])

    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(seed=cfg["seed"], **cfg["training"]),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(cfg["training"]["output_dir"])


if __name__ == "__main__":
    main()
