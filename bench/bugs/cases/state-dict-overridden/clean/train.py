import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from datasets import load_from_disk

model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-7b", dtype="bfloat16")
model = get_peft_model(
    model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", learning_rate=3e-4, bf16=True),
    train_dataset=load_from_disk("encoded"),
)
trainer.train()
model.save_pretrained("out/adapter")
