from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "meta-llama/Llama-3.1-8B-Instruct"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = "<|finetune_right_pad_id|>"
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype="bfloat16")
dataset = load_dataset("json", data_files="kto.jsonl", split="train")

trainer = KTOTrainer(
    model=model,
    args=KTOConfig(
        output_dir="out-kto",
        beta=0.1,
        desirable_weight=1.0,
        undesirable_weight=1.0,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=1,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        max_length=1024,
        max_prompt_length=512,
        bf16=True,
        logging_steps=5,
        report_to="none",
    ),
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model()
