import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "Qwen/Qwen2.5-1.5B-Instruct"

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16)

ds = load_dataset("json", data_files="data/prefs_train.jsonl", split="train")


def to_trl(row):
    # TRL wants chat messages on all three columns
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": row["chosen"],
        "rejected": row["rejected"],
    }


ds = ds.map(to_trl, remove_columns=["prompt_id", "score_chosen", "score_rejected"])
ds = ds.train_test_split(test_size=18, seed=1)

peft_config = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)

args = DPOConfig(
    output_dir="out/dpo-qwen-1.5b",
    beta=0.1,
    learning_rate=5e-6,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=3,
    max_length=1024,
    max_prompt_length=512,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=5,
    eval_strategy="steps",
    eval_steps=20,
    save_strategy="epoch",
    report_to="none",
    seed=1,
)

trainer = DPOTrainer(
    model=model,
    ref_model=None,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["test"],
    processing_class=tok,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out/dpo-qwen-1.5b/final")
tok.save_pretrained("out/dpo-qwen-1.5b/final")
