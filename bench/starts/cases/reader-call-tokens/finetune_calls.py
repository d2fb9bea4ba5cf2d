from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

base = "mistralai/Mistral-7B-v0.3"
tok = AutoTokenizer.from_pretrained(base)
markers = ["<|call|>", "<|result|>", "<|done|>"]
tok.add_special_tokens({"additional_special_tokens": markers, "pad_token": "<|pad|>"})

model = AutoModelForCausalLM.from_pretrained(base, dtype="bfloat16")
model.resize_token_embeddings(len(tok))

ds = load_dataset("json", data_files={"train": "calls_train.jsonl", "dev": "calls_dev.jsonl"})

peft_cfg = LoraConfig(
    r=32,
    lora_alpha=64,
    lora_dropout=0.05,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    task_type="CAUSAL_LM",
)
args = SFTConfig(
    output_dir="calls-lora",
    dataset_text_field="text",
    max_length=2048,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    learning_rate=1e-4,
    num_train_epochs=3,
    eval_strategy="epoch",
    logging_steps=20,
    bf16=True,
)
trainer = SFTTrainer(
    model=model,
    args=args,
    train_dataset=ds["train"],
    eval_dataset=ds["dev"],
    processing_class=tok,
    peft_config=peft_cfg,
)
trainer.train()
trainer.save_model()
