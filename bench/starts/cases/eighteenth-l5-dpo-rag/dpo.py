import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

model_id = "Qwen/Qwen2.5-7B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(model_id)
model = AutoModelForCausalLM.from_pretrained(model_id, dtype=torch.bfloat16)

SYSTEM = "Answer the question with the passages only, and name the passage that you used."


def build(row):
    passages = "\n\n".join(f"[{i + 1}] {p}" for i, p in enumerate(row["passages"]))
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{passages}\n\nQuestion: {row['question']}"},
        ],
        "chosen": [{"role": "assistant", "content": row["better"]}],
        "rejected": [{"role": "assistant", "content": row["worse"]}],
    }


train = load_dataset("json", data_files="rag_prefs.jsonl", split="train")
train = train.map(build, remove_columns=train.column_names)

args = DPOConfig(
    output_dir="outputs/rag-dpo",
    beta=0.1,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_steps=10,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    num_train_epochs=3,
    logging_steps=5,
    bf16=True,
    gradient_checkpointing=True,
    save_strategy="epoch",
    report_to="none",
)

trainer = DPOTrainer(
    model=model,
    args=args,
    train_dataset=train,
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    ),
)
trainer.train()
trainer.save_model("outputs/rag-dpo/final")
