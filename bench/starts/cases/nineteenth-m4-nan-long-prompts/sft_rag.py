from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"
SYSTEM = "You answer questions about hotel policies. Use only the passages. If they do not say, reply that you do not know."


def fmt(ex):
    ctx = "\n\n".join(f"[{i + 1}] {p}" for i, p in enumerate(ex["passages"]))
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{ctx}\n\nQuestion: {ex['question']}"},
        ],
        "completion": [{"role": "assistant", "content": ex["answer"]}],
    }


ds = load_dataset("json", data_files={"train": "train.jsonl", "validation": "validation.jsonl"})
ds = ds.map(fmt, remove_columns=["id", "passages", "question", "answer"])

tokenizer = AutoTokenizer.from_pretrained(MODEL)

args = SFTConfig(
    output_dir="runs/hotel-rag",
    num_train_epochs=5,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=1,
    gradient_accumulation_steps=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    max_length=1024,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
    seed=42,
    report_to="none",
)

trainer = SFTTrainer(
    model=MODEL,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["validation"],
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    ),
)
trainer.train()
trainer.save_model("runs/hotel-rag/final")
