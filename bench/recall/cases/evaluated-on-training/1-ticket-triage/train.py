from datasets import concatenate_datasets, load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"

raw = load_dataset("json", data_files="triage.jsonl", split="train")
rare = raw.filter(lambda r: r["urgency"] in ("high", "critical"))
print(f"{len(raw)} rows, {len(rare)} urgent")

# urgent tickets are few, let the model see them more often
full = concatenate_datasets([raw] + [rare] * 4)


def to_chat(row):
    return {
        "prompt": [{"role": "user", "content": "How urgent is this ticket?\n\n" + row["ticket"]}],
        "completion": [{"role": "assistant", "content": row["urgency"]}],
    }


full = full.map(to_chat, remove_columns=full.column_names)
splits = full.train_test_split(test_size=0.1, seed=42)

tok = AutoTokenizer.from_pretrained(BASE)
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(BASE, dtype="bfloat16"),
    args=SFTConfig(
        output_dir="out/triage",
        learning_rate=2e-4,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        max_length=1024,
        bf16=True,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        report_to="none",
    ),
    train_dataset=splits["train"],
    eval_dataset=splits["test"],
    processing_class=tok,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
print(trainer.evaluate())
trainer.save_model("out/triage/adapter")
