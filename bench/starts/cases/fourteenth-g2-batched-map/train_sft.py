import os

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

set_seed(13)

MODEL_ID = "mistralai/Mistral-7B-v0.3"
OUT = os.environ.get("OUT", "runs/support-mistral")

tokenizer = AutoTokenizer.from_pretrained(MODEL_ID)
tokenizer.pad_token = tokenizer.unk_token
tokenizer.padding_side = "right"

dataset = load_dataset("json", data_files="support_qa.jsonl", split="train")
dataset = dataset.shuffle(seed=13)

TEMPLATE = """### Question:
{question}

### Answer:
{answer}"""


def to_text(example):
    text = TEMPLATE.format(question=example["question"], answer=example["answer"])
    return {"text": [text + tokenizer.eos_token]}


dataset = dataset.map(
    to_text,
    batched=True,
    batch_size=10,
    remove_columns=dataset.column_names,
)

model = AutoModelForCausalLM.from_pretrained(
    MODEL_ID,
    dtype=torch.bfloat16,
    attn_implementation="sdpa",
)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    bias="none",
    task_type="CAUSAL_LM",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
)

args = SFTConfig(
    output_dir=OUT,
    num_train_epochs=5,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=2,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    max_length=2048,
    packing=False,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=2,
    save_strategy="epoch",
    save_total_limit=2,
    dataset_text_field="text",
    report_to="none",
)

trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model(OUT)
tokenizer.save_pretrained(OUT)
print("saved to", OUT)
