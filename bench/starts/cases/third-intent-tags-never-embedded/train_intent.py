import json
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
TAGS = ["<intent>", "</intent>", "<slots>", "</slots>", "<slot_name>", "<slot_value>"]

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
print("added", tokenizer.add_special_tokens({"additional_special_tokens": TAGS}), "tokens")

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map={"": 0})
model.resize_token_embeddings(len(tokenizer))
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=[
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
        ],
    ),
)
model.print_trainable_parameters()

train = load_dataset("json", data_files="intents.jsonl", split="train")

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=train,
    args=SFTConfig(
        output_dir="out-intents",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        logging_steps=5,
        bf16=True,
        gradient_checkpointing=True,
        assistant_only_loss=False,
        max_length=1024,
        report_to="none",
    ),
)
trainer.train()
trainer.save_model("out-intents/final")
tokenizer.save_pretrained("out-intents/final")
