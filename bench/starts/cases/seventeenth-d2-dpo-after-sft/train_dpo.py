import logging
import os
from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import DPOConfig, DPOTrainer

logger = logging.getLogger(__name__)


@dataclass
class Args:
    base: str = "Qwen/Qwen2.5-7B"
    sft: str = "bluefin-ai/qwen2.5-7b-support-sft"
    pairs: str = "bluefin-ai/support-pairs-v3"
    out: str = "/mnt/ckpt/support-dpo"


def load(name):
    return AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2")


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    set_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(args.sft)

    dataset = load_dataset(args.pairs)
    dataset = dataset.filter(lambda r: r["chosen"][-1]["content"] != r["rejected"][-1]["content"])

    model = load(args.sft)
    ref_model = load(args.base)
    model.config.use_cache = False

    config = DPOConfig(
        output_dir=args.out,
        beta=0.1,
        loss_type="sigmoid",
        learning_rate=5e-7,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        per_device_eval_batch_size=2,
        max_length=2048,
        max_prompt_length=1536,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        eval_strategy="steps",
        eval_steps=50,
        logging_steps=5,
        logging_first_step=True,
        save_strategy="steps",
        save_steps=100,
        report_to=["wandb"] if os.environ.get("WANDB_API_KEY") else [],
    )
    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=config,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
