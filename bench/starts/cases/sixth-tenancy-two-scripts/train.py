"""SFT of Llama-3.1-8B-Instruct on tenancy questions (TRL, LoRA)."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BASE = "meta-llama/Llama-3.1-8B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map={"": 0})
model.config.use_cache = False

# rows: {"messages": [system, user, assistant]}
train = load_dataset("json", data_files="data/tenancy_train.jsonl", split="train")

args = SFTConfig(
    output_dir="out/tenancy",
    max_length=1024,
    assistant_only_loss=False,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    learning_rate=1e-4,
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    num_train_epochs=3,
    bf16=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)
trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=train,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("out/tenancy")
tokenizer.save_pretrained("out/tenancy")
