import sys

import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def main(path):
    cfg = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    tok = AutoTokenizer.from_pretrained(cfg["base"])
    if tok.pad_token is None:
        tok.pad_token = tok.unk_token
    model = AutoModelForCausalLM.from_pretrained(cfg["base"], dtype=torch.bfloat16, **cfg["load"])
    trainer = DPOTrainer(
        model=model,
        args=DPOConfig(**cfg["train"]),
        train_dataset=load_dataset("trl-lib/ultrafeedback_binarized", split="train"),
        processing_class=tok,
        peft_config=LoraConfig(**cfg["lora"]),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1])
