from datasets import concatenate_datasets, load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-3B-Instruct"


def unique(ds):
    seen = set()

    def new(row):
        key = " ".join(row["ticket"].lower().split())
        if key in seen:
            return False
        seen.add(key)
        return True

    return ds.filter(new, load_from_cache_file=False)


def boost(ds, times):
    rare = ds.filter(lambda r: r["urgency"] in ("high", "critical"))
    return concatenate_datasets([ds] + [rare] * times).shuffle(seed=3)


def to_chat(row):
    return {
        "prompt": [{"role": "user", "content": "How urgent is this ticket?\n\n" + row["ticket"]}],
        "completion": [{"role": "assistant", "content": row["urgency"]}],
    }


raw = unique(load_dataset("json", data_files="triage.jsonl", split="train"))
parts = raw.train_test_split(test_size=0.1, seed=42)
train_ds = boost(parts["train"], 3).map(to_chat, remove_columns=raw.column_names)
eval_ds = parts["test"].map(to_chat, remove_columns=raw.column_names)

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
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        report_to="none",
    ),
    train_dataset=train_ds,
    eval_dataset=eval_ds,
    processing_class=AutoTokenizer.from_pretrained(BASE),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("out/triage/adapter")
