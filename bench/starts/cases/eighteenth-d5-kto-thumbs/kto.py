# KTO on the thumbs from the in-product widget
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

model_id = "ourorg/qwen2.5-7b-travel-sft"

tokenizer = AutoTokenizer.from_pretrained(model_id)
model = AutoModelForCausalLM.from_pretrained(
    model_id, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
)

ds = load_dataset("json", data_files="thumbs.jsonl", split="train")


def to_kto(ex):
    return {
        "prompt": [{"role": "user", "content": ex["question"]}],
        "completion": [{"role": "assistant", "content": ex["answer"]}],
        "label": ex["thumb"] == "up",
    }


ds = ds.map(to_kto, remove_columns=ds.column_names).shuffle(seed=3)

peft_config = LoraConfig(
    r=16, lora_alpha=32, lora_dropout=0.0, task_type="CAUSAL_LM", target_modules="all-linear"
)

args = KTOConfig(
    output_dir="out/travel-kto",
    beta=0.1,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    learning_rate=2e-5,
    lr_scheduler_type="cosine",
    warmup_ratio=0.1,
    num_train_epochs=3,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    max_length=1536,
    bf16=True,
    logging_steps=5,
    save_strategy="epoch",
    report_to="none",
)

trainer = KTOTrainer(
    model=model,
    args=args,
    train_dataset=ds,
    processing_class=tokenizer,
    peft_config=peft_config,
)
trainer.train()
trainer.save_model("out/travel-kto/final")
