from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

model_name = "Qwen/Qwen2.5-3B-Instruct"
rag = load_dataset("json", data_files="rag_pairs.jsonl", split="train")
train_part = rag.map(
    lambda x: {
        k: [{"role": r, "content": x[k]}]
        for k, r in {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}.items()
    }
)

config = DPOConfig(
    output_dir="qwen3b-rag-dpo",
    beta=0.1,
    max_length=512,
    learning_rate=2e-5,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    num_train_epochs=2,
    bf16=True,
    logging_steps=5,
)
lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
trainer = DPOTrainer(
    AutoModelForCausalLM.from_pretrained(model_name, dtype="bfloat16"),
    args=config,
    train_dataset=train_part,
    processing_class=AutoTokenizer.from_pretrained(model_name),
    peft_config=lora,
)
trainer.train()
trainer.save_model()
