import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "google/gemma-3-4b-it"
OUT = "out/gemma3-tickets"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForImageTextToText.from_pretrained(
    MODEL, torch_dtype=torch.bfloat16, attn_implementation="eager"
)
model.config.use_cache = False

ds = load_dataset("json", data_files="data/tickets_train.jsonl", split="train")


def to_pc(row):
    return {
        "prompt": [{"role": "user", "content": f"Classify and route this ticket:\n\n{row['ticket']}"}],
        "completion": [{"role": "assistant", "content": row["routing_json"]}],
    }


ds = ds.map(to_pc, remove_columns=ds.column_names)
ds = ds.train_test_split(test_size=0.05, seed=7)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    exclude_modules=r".*vision_tower.*",
    task_type="CAUSAL_LM",
)

args = SFTConfig(
    output_dir=OUT,
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    max_length=2048,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)
