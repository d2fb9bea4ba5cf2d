import argparse
import logging
import math
import sys
from itertools import chain

import datasets
import torch
import transformers
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

logging.basicConfig(
    format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    level=logging.INFO,
    handlers=[logging.StreamHandler(sys.stdout)],
)
logger = logging.getLogger("cpt")
transformers.utils.logging.set_verbosity_info()
datasets.utils.logging.set_verbosity_warning()

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="HuggingFaceTB/SmolLM2-1.7B")
ap.add_argument("--out", default="out-cpt")
ap.add_argument("--block", type=int, default=2048)
ap.add_argument("--lr", type=float, default=2e-5)
cli = ap.parse_args()

set_seed(11)

tokenizer = AutoTokenizer.from_pretrained(cli.model)
model = AutoModelForCausalLM.from_pretrained(cli.model, dtype=torch.float32, attn_implementation="sdpa")

raw = load_dataset(
    "parquet",
    data_files={"train": "corpus/minutes-train-*.parquet", "validation": "corpus/minutes-val.parquet"},
)


def tokenize(batch):
    out = tokenizer(batch["text"], add_special_tokens=False)
    return {"input_ids": [ids + [tokenizer.eos_token_id] for ids in out["input_ids"]]}


def blocks(batch):
    ids = list(chain.from_iterable(batch["input_ids"]))
    n = len(ids) // cli.block * cli.block
    parts = [ids[i : i + cli.block] for i in range(0, n, cli.block)]
    return {"input_ids": parts, "attention_mask": [[1] * cli.block for _ in parts], "labels": [p[:] for p in parts]}


columns = raw["train"].column_names
tokenized = raw.map(tokenize, batched=True, num_proc=8, remove_columns=columns)
lm = tokenized.map(blocks, batched=True, batch_size=4000, num_proc=8)
logger.info("blocks: %d train, %d validation", len(lm["train"]), len(lm["validation"]))


class PerplexityTrainer(Trainer):
    def evaluate(self, *args, **kwargs):
        metrics = super().evaluate(*args, **kwargs)
        metrics["eval_perplexity"] = math.exp(metrics["eval_loss"])
        self.log({"eval_perplexity": metrics["eval_perplexity"]})
        return metrics


args = TrainingArguments(
    output_dir=cli.out,
    num_train_epochs=2,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=4,
    learning_rate=cli.lr,
    lr_scheduler_type="cosine",
    warmup_steps=60,
    weight_decay=0.01,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=20,
    eval_strategy="steps",
    eval_steps=100,
    save_strategy="steps",
    save_steps=100,
    save_total_limit=2,
    load_best_model_at_end=True,
    metric_for_best_model="perplexity",
    report_to="none",
)

trainer = PerplexityTrainer(
    model=model,
    args=args,
    train_dataset=lm["train"],
    eval_dataset=lm["validation"],
    data_collator=default_data_collator,
    processing_class=tokenizer,
)
trainer.train()

final = trainer.evaluate()
logger.info("final model: loss %.4f perplexity %.3f", final["eval_loss"], final["eval_perplexity"])
trainer.save_model(cli.out + "/final")
