import sys
from pathlib import Path

import torch
import yaml
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

from losses import DigitLoss


def main(path):
    cfg = yaml.safe_load(Path(path).read_text())
    set_seed(cfg["trainer"]["seed"])
    tok = AutoTokenizer.from_pretrained(cfg["model"])
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(**cfg["lora"]))
    data = load_from_disk(cfg["tokenized"])
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**cfg["trainer"]),
        train_dataset=data["train"],
        eval_dataset=data["valid"],
        data_collator=DataCollatorForSeq2Seq(tok),
        processing_class=tok,
        compute_loss_func=DigitLoss(tok, cfg["digit_factor"]),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1])
