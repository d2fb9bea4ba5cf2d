"""DPO on top of our own SFT of Qwen2.5-7B. Run with: accelerate launch --config_file ds_z2.yaml dpo.py"""
import logging
import sys

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                    format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("dpo")

BASE = "Qwen/Qwen2.5-7B"
SFT = "/mnt/nvme/exp/qwen25-7b-legalqa-sft/checkpoint-1860"
OUT = "/mnt/nvme/exp/qwen25-7b-legalqa-dpo"


def to_pairs(ex):
    return {
        "prompt": [
            {"role": "system", "content": "You answer questions about German tenancy law."},
            {"role": "user", "content": ex["question"]},
        ],
        "chosen": [{"role": "assistant", "content": ex["better"]}],
        "rejected": [{"role": "assistant", "content": ex["worse"]}],
    }


def main():
    tok = AutoTokenizer.from_pretrained(SFT)

    log.info("loading policy")
    model = AutoModelForCausalLM.from_pretrained(
        SFT, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.config.use_cache = False

    log.info("loading reference")
    ref_model = AutoModelForCausalLM.from_pretrained(
        BASE, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )

    ds = load_dataset("json", data_files="prefs/legalqa_pairs.jsonl", split="train")
    ds = ds.map(to_pairs, remove_columns=ds.column_names)
    ds = ds.train_test_split(test_size=200, seed=7)

    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        learning_rate=5e-7,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        logging_first_step=True,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="epoch",
        report_to="none",
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(OUT)
    tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
