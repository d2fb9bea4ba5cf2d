"""Stage 2: DPO on top of the SFT adapter of stage 1 (one A100 80GB)."""
import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
SFT_ADAPTER = "out/stage1-sft"
OUT = "out/stage2-dpo"


def load_policy():
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    # go on with the LoRA weights of stage 1
    model = PeftModel.from_pretrained(model, SFT_ADAPTER)
    model.print_trainable_parameters()
    return model


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    pairs = load_dataset("json", data_files="pairs.jsonl", split="train").train_test_split(test_size=30, seed=3)

    args = DPOConfig(
        output_dir=OUT,
        beta=0.1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_length=1024,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        seed=3,
    )
    trainer = DPOTrainer(
        model=load_policy(),
        ref_model=None,
        args=args,
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(OUT)


if __name__ == "__main__":
    main()
