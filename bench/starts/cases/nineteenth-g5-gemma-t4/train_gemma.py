import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

# one A100 40GB on the cluster
mid = "google/gemma-3-1b-it"
tok = AutoTokenizer.from_pretrained(mid)
model = AutoModelForCausalLM.from_pretrained(mid, dtype=torch.bfloat16, attn_implementation="eager")

data = load_dataset("json", data_files="recipes_chat.jsonl", split="train").train_test_split(0.05, seed=0)

trainer = SFTTrainer(
    model=model,
    processing_class=tok,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    peft_config=LoraConfig(
        r=16, lora_alpha=32, task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    ),
    args=SFTConfig(
        output_dir="gemma-recipes",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        learning_rate=1e-4,
        lr_scheduler_type="linear",
        warmup_steps=10,
        max_length=2048,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
    ),
)
trainer.train()
