import torch
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-7B"
SFT_ADAPTER = "runs/sft-lora/checkpoint-1200"


def load_policy():
    base = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    model = PeftModel.from_pretrained(base, SFT_ADAPTER, is_trainable=True)
    model.config.use_cache = False
    return model


def main():
    tokenizer = AutoTokenizer.from_pretrained(SFT_ADAPTER)
    dataset = load_dataset("json", data_files="pairs.jsonl", split="train").train_test_split(0.04, seed=3)
    args = DPOConfig(
        output_dir="runs/dpo-lora",
        beta=0.1,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        max_length=1536,
        max_prompt_length=1024,
        bf16=True,
        logging_steps=5,
        logging_first_step=True,
        save_strategy="epoch",
        report_to="none",
    )
    trainer = DPOTrainer(
        model=load_policy(),
        ref_model=None,
        args=args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
