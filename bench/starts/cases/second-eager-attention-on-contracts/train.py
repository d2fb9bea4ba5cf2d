import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "gemma-2-9b-it"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(
    MODEL, torch_dtype=torch.bfloat16, attn_implementation="eager"
)
dataset = load_dataset("json", data_files="contracts/*.jsonl", split="train")

training_args = SFTConfig(
    output_dir="out-contracts",
    max_length=8192,
    packing=True,
    per_device_train_batch_size=1,
    gradient_accumulation_steps=16,
    gradient_checkpointing=True,
    bf16=True,
    learning_rate=1e-4,
    num_train_epochs=1,
    optim="adamw_torch_fused",
    use_liger_kernel=True,
    logging_steps=1,
    report_to="wandb",
    run_name="contracts-8k",
)
peft_config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
trainer = SFTTrainer(
    model=model,
    args=training_args,
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
