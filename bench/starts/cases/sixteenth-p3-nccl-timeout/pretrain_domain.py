#!/usr/bin/env python
"""Continued pre-training on the chemistry corpus. torchrun --nproc_per_node 4 pretrain_domain.py"""
import logging
import sys
from dataclasses import dataclass, field
from itertools import chain

import torch
import transformers
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, default_data_collator

logger = logging.getLogger(__name__)


@dataclass
class Args:
    model_name: str = field(default="mistralai/Mistral-7B-v0.3")
    corpus: str = field(default="/mnt/nfs/corpora/chem_full/*.jsonl.gz")
    block_size: int = field(default=4096)


def main():
    parser = HfArgumentParser((Args, TrainingArguments))
    args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%H:%M:%S", handlers=[logging.StreamHandler(sys.stdout)])
    logger.setLevel(training_args.get_process_log_level())
    logger.warning(
        f"Process rank: {training_args.local_rank}, device: {training_args.device}, n_gpu: {training_args.n_gpu}, "
        f"distributed training: {training_args.parallel_mode.value == 'distributed'}"
    )
    transformers.set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name)
    raw = load_dataset("json", data_files=args.corpus, split="train")

    def tokenize(batch):
        out = tokenizer(batch["text"], add_special_tokens=False)
        return {"input_ids": [[tokenizer.bos_token_id] + i + [tokenizer.eos_token_id] for i in out["input_ids"]]}

    def group(batch):
        ids = list(chain(*batch["input_ids"]))
        total = len(ids) // args.block_size * args.block_size
        blocks = [ids[i : i + args.block_size] for i in range(0, total, args.block_size)]
        return {"input_ids": blocks, "attention_mask": [[1] * args.block_size for _ in blocks], "labels": [list(b) for b in blocks]}

    with training_args.main_process_first(desc="tokenize and group"):
        tokenized = raw.map(tokenize, batched=True, remove_columns=raw.column_names, desc="Tokenizing corpus")
        train = tokenized.map(group, batched=True, desc=f"Grouping texts in chunks of {args.block_size}")

    logger.info(f"{len(train)} blocks")
    model = AutoModelForCausalLM.from_pretrained(args.model_name, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.config.use_cache = False

    trainer = Trainer(model=model, args=training_args, train_dataset=train, processing_class=tokenizer, data_collator=default_data_collator)
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
