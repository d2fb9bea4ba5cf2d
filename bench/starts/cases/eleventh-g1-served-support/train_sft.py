"""SFT of the support bot. Run: accelerate launch --num_processes 1 train_sft.py"""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-7B-Instruct"
OUT = "out/support-lora"

tokenizer = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(
    BASE, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)

# {"messages": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", ...}]}
train = load_dataset("json", data_files="data/support_train.jsonl", split="train")
val = load_dataset("json", data_files="data/support_val.jsonl", split="train")


def to_prompt_completion(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


train = train.map(to_prompt_completion, remove_columns=train.column_names)
val = val.map(to_prompt_completion, remove_columns=val.column_names)

peft_config = LoraConfig(
    r=32,
    lora_alpha=64,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)

args = SFTConfig(
    output_dir=OUT,
    num_train_epochs=3,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    max_length=4096,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=100,
    save_steps=100,
    save_total_limit=2,
    report_to="wandb",
    run_name="support-lora-v4",
    seed=7,
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=val,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)
