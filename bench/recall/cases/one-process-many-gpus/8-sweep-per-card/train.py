import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--lr", type=float, required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    base = "Qwen/Qwen2.5-3B-Instruct"
    data = load_dataset("json", data_files="chats.jsonl", split="train").train_test_split(test_size=0.1, seed=4)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype="bfloat16"),
        args=SFTConfig(
            output_dir=a.out,
            learning_rate=a.lr,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=4,
            max_length=2048,
            bf16=True,
            warmup_steps=20,
            logging_steps=10,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()
