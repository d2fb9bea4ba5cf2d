from unsloth import FastLanguageModel, PatchDPOTrainer

PatchDPOTrainer()
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

model, tokenizer = FastLanguageModel.from_pretrained(
    "unsloth/Qwen2.5-3B-Instruct", max_seq_length=2048, load_in_4bit=True
)
model = FastLanguageModel.get_peft_model(
    model,
    r=32,
    lora_alpha=32,
    lora_dropout=0,
    bias="none",
    use_gradient_checkpointing="unsloth",
    random_state=3407,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
)
ds = load_dataset("csv", data_files="preferences.csv", split="train")


def to_chat(r):
    return {
        "prompt": [{"role": "user", "content": r["question"]}],
        "chosen": [{"role": "assistant", "content": r["chosen"]}],
        "rejected": [{"role": "assistant", "content": r["rejected"]}],
    }


ds = ds.map(to_chat, remove_columns=["question"])
trainer = DPOTrainer(
    model=model,
    ref_model=None,
    args=DPOConfig(
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        warmup_steps=5,
        num_train_epochs=3,
        learning_rate=5e-6,
        logging_steps=2,
        optim="adamw_8bit",
        lr_scheduler_type="linear",
        seed=42,
        beta=0.1,
        max_length=1024,
        output_dir="outputs",
        report_to="none",
    ),
    train_dataset=ds,
    processing_class=tokenizer,
)
trainer.train()
model.save_pretrained("dpo_lora")
