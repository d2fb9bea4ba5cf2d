import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"
rank = int(os.environ.get("RANK", 0))
world_size = int(os.environ.get("WORLD_SIZE", 1))
local_rank = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(local_rank)

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="sdpa")

dataset = load_dataset("json", data_files="warranty_qa.jsonl", split="train")
dataset = dataset.shuffle(seed=7)
dataset = dataset.shard(num_shards=world_size, index=rank)
print(f"[rank {rank}] {len(dataset)} rows")


def to_chat(row):
    return {
        "prompt": [
            {"role": "system", "content": "You answer warranty questions for Norrlund Appliances."},
            {"role": "user", "content": row["question"]},
        ],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


dataset = dataset.map(to_chat, remove_columns=dataset.column_names)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)

config = SFTConfig(
    output_dir="out/warranty-4gpu",
    max_length=1024,
    num_train_epochs=3,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=1,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_steps=3,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    logging_steps=2,
    save_strategy="epoch",
    seed=7,
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=config,
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out/warranty-4gpu/final")
