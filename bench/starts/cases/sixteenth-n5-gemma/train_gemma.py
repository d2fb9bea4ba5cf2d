import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer, Gemma3ForConditionalGeneration
from trl import SFTConfig, SFTTrainer

model_id = "google/gemma-3-4b-it"

tokenizer = AutoTokenizer.from_pretrained(model_id)
model = Gemma3ForConditionalGeneration.from_pretrained(
    model_id, torch_dtype=torch.bfloat16, attn_implementation="eager", device_map={"": 0}
)

# rows: {"prompt": [{"role": "user", ...}], "completion": [{"role": "assistant", ...}]}
dataset = load_dataset("json", data_files="legal_plain.jsonl", split="train")

peft_config = LoraConfig(
    r=32,
    lora_alpha=32,
    lora_dropout=0.05,
    target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
    task_type="CAUSAL_LM",
)

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=dataset,
    peft_config=peft_config,
    args=SFTConfig(
        output_dir="gemma3-plain",
        num_train_epochs=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_length=2048,
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
    ),
)
trainer.train()
trainer.save_model("gemma3-plain/final")
tokenizer.save_pretrained("gemma3-plain/final")
