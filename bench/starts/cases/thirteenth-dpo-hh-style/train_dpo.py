from datasets import load_dataset
from peft import LoraConfig
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

SFT = "kestrel-ai/garden-assistant-3b-sft"  # Llama-3.2-3B, SFT on "\n\nHuman: ... \n\nAssistant: ..." dialogues
TURN = "\n\nAssistant:"


def split_prompt(example):
    cut = example["chosen"].rfind(TURN) + len(TURN)
    prompt = example["chosen"][:cut]
    assert example["rejected"].startswith(prompt)
    return {"prompt": prompt, "chosen": example["chosen"], "rejected": example["rejected"]}


tokenizer = AutoTokenizer.from_pretrained(SFT)
if tokenizer.pad_token is None:
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

model = AutoModelForCausalLM.from_pretrained(SFT, torch_dtype=torch.bfloat16, attn_implementation="sdpa")

train = load_dataset("json", data_files="hh_garden.jsonl", split="train")
train = train.map(split_prompt)

config = DPOConfig(
    output_dir="garden-dpo",
    beta=0.1,
    rpo_alpha=1.0,
    max_length=1024,
    max_prompt_length=512,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=3,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)

trainer = DPOTrainer(
    model=model,
    ref_model=None,
    args=config,
    train_dataset=train,
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    ),
)
trainer.train()
trainer.save_model("garden-dpo/final")
