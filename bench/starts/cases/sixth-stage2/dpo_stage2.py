"""Stage 2: DPO on top of the SFT adapter of stage 1.

    python dpo_stage2.py 2>&1 | tee train.log
"""
import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "meta-llama/Llama-3.1-8B"
STAGE1 = "out/stage1-sft/checkpoint-1840"
OUT = "out/stage2-dpo"


def load_policy():
    model = AutoModelForCausalLM.from_pretrained(
        BASE,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map={"": 0},
    )
    model.config.use_cache = False
    # go on with the adapter of stage 1
    model = PeftModel.from_pretrained(model, STAGE1)
    model.enable_input_require_grads()
    return model


def load_pairs():
    data = load_dataset("json", data_files="data/pairs_v4.jsonl", split="train")
    data = data.select_columns(["prompt", "chosen", "rejected"])
    return data.train_test_split(test_size=200, seed=9)


def main():
    tokenizer = AutoTokenizer.from_pretrained(STAGE1)
    data = load_pairs()
    config = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        learning_rate=2e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
        seed=9,
    )
    trainer = DPOTrainer(
        model=load_policy(),
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
