from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer, Gemma3ForCausalLM
from trl import SFTConfig, SFTTrainer
import torch

BASE = "google/gemma-3-1b-it"


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = Gemma3ForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="eager")
    data = load_dataset("json", data_files="data/returns.jsonl", split="train").train_test_split(0.1, seed=7)

    args = SFTConfig(
        output_dir="outputs/returns-desk",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.05,
        bf16=True,
        max_length=1024,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    merged = trainer.model.merge_and_unload()
    merged.save_pretrained("outputs/returns-desk-merged")
    tokenizer.save_pretrained("outputs/returns-desk-merged")


if __name__ == "__main__":
    main()
