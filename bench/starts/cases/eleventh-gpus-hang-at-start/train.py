#!/usr/bin/env python
# continued pre-training of llama 3.1 8b on german legal text, then we do the instruct stage
import argparse
import os
from itertools import chain

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B")
    p.add_argument("--data", required=True, help="folder with *.jsonl.zst, one field: text")
    p.add_argument("--out", required=True)
    p.add_argument("--block", type=int, default=4096)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--bs", type=int, default=2)
    p.add_argument("--accum", type=int, default=8)
    return p.parse_args()


def main():
    a = parse()
    targs = TrainingArguments(
        output_dir=a.out,
        num_train_epochs=1,
        per_device_train_batch_size=a.bs,
        gradient_accumulation_steps=a.accum,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.01,
        weight_decay=0.1,
        max_grad_norm=1.0,
        bf16=True,
        fsdp="full_shard auto_wrap",
        fsdp_config={
            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
            "activation_checkpointing": True,
        },
        logging_steps=5,
        save_steps=500,
        save_total_limit=2,
        dataloader_num_workers=4,
        report_to="tensorboard",
        seed=1234,
    )

    tok = AutoTokenizer.from_pretrained(a.model)
    eos = tok.eos_token_id

    raw = load_dataset("json", data_files=os.path.join(a.data, "*.jsonl.zst"), split="train")
    if targs.process_index == 0:
        print(raw)

    def tokenize(batch):
        enc = tok(batch["text"], add_special_tokens=True)
        return {"input_ids": [ids + [eos] for ids in enc["input_ids"]]}

    def group(batch):
        ids = list(chain.from_iterable(batch["input_ids"]))
        n = len(ids) // a.block * a.block
        blocks = [ids[i : i + a.block] for i in range(0, n, a.block)]
        return {"input_ids": blocks, "labels": [b.copy() for b in blocks]}

    with targs.main_process_first(desc="tokenize and group"):
        ds = raw.map(tokenize, batched=True, remove_columns=raw.column_names, desc="tokenize")
        ds = ds.map(group, batched=True, batch_size=2000, desc="group")

    model = AutoModelForCausalLM.from_pretrained(
        a.model, dtype=torch.float32, attn_implementation="flash_attention_2"
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds,
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
