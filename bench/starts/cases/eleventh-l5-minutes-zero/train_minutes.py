import json
import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

set_seed(3407)

MODEL = "Qwen/Qwen2.5-7B-Instruct"
DATA = sys.argv[1] if len(sys.argv) > 1 else "data/minutes.jsonl"
OUT = "runs/minutes-v2"

INSTRUCTION = (
    "You are the clerk of the town council. Read the transcript and write down the decisions "
    "as a list, one line per decision, with the result of the vote."
)


def read(path):
    for line in open(path, encoding="utf-8"):
        r = json.loads(line)
        yield {
            "prompt": [
                {"role": "system", "content": INSTRUCTION},
                {"role": "user", "content": r["transcript"]},
            ],
            "completion": [{"role": "assistant", "content": r["decisions"]}],
        }


dataset = Dataset.from_list(list(read(DATA)))
print(dataset)

tokenizer = AutoTokenizer.from_pretrained(MODEL)

config = SFTConfig(
    output_dir=OUT,
    model_init_kwargs={"dtype": torch.bfloat16, "attn_implementation": "flash_attention_2"},
    num_train_epochs=4,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.05,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    logging_steps=1,
    save_strategy="epoch",
    save_total_limit=1,
    report_to="none",
)

lora = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    target_modules="all-linear",
    task_type="CAUSAL_LM",
)

trainer = SFTTrainer(
    model=MODEL,
    args=config,
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=lora,
)

trainer.model.print_trainable_parameters()
trainer.train()
trainer.save_model(f"{OUT}/final")
