import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

MODEL = "meta-llama/Llama-3.1-8B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa")

dataset = load_dataset("json", data_files="prefs.jsonl", split="train")
parts = dataset.train_test_split(test_size=0.1, seed=11)

config = DPOConfig(
    output_dir="runs/dpo-direct-answers",
    beta=0.1,
    learning_rate=1e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=4,
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    gradient_accumulation_steps=2,
    max_length=1024,
    max_prompt_length=512,
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=5,
    report_to="tensorboard",
)

trainer = DPOTrainer(
    model=model,
    args=config,
    train_dataset=parts["train"],
    eval_dataset=parts["test"],
    processing_class=tokenizer,
    peft_config=LoraConfig(
        r=32,
        lora_alpha=32,
        lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)
trainer.train()
trainer.save_model("runs/dpo-direct-answers/final")
tokenizer.save_pretrained("runs/dpo-direct-answers/final")
