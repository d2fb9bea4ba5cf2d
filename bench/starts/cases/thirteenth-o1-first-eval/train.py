# contract Q&A, Qwen3-8B LoRA on one H100
import json

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen3-8B"
MAX_LEN = 8192


def read(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            yield {
                "prompt": [{"role": "user", "content": row["contract"] + "\n\n" + row["question"]}],
                "completion": [{"role": "assistant", "content": row["answer"]}],
            }


tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(
    MODEL,
    dtype=torch.bfloat16,
    attn_implementation="flash_attention_2",
)

train = Dataset.from_list(list(read("contracts_train.jsonl")))
held_out = Dataset.from_list(list(read("contracts_dev.jsonl")))

args = SFTConfig(
    output_dir="out/contracts-r16",
    max_length=MAX_LEN,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=16,
    gradient_checkpointing=True,
    num_train_epochs=2,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_steps=40,
    bf16=True,
    logging_steps=10,
    eval_strategy="steps",
    eval_steps=200,
    save_strategy="steps",
    save_steps=200,
    save_total_limit=2,
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=held_out,
    processing_class=tok,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
