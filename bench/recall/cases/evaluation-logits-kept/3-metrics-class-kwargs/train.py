import sys

import torch
import yaml
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

from metrics import LanguageModelMetrics


def build(cfg):
    tok = AutoTokenizer.from_pretrained(cfg["model"])
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **cfg["lora"]))
    data = load_from_disk(cfg["data"])
    parts = {
        "model": model,
        "args": TrainingArguments(**cfg["training"]),
        "data_collator": DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        "processing_class": tok,
        "train_dataset": data["train"],
        "eval_dataset": data["validation"],
    }
    if cfg.get("metrics"):
        parts["compute_metrics"] = LanguageModelMetrics()
    return parts


def main():
    with open(sys.argv[1]) as fh:
        cfg = yaml.safe_load(fh)
    trainer = Trainer(**build(cfg))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
