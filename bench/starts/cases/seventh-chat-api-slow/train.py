"""QLoRA of Llama-3.1-8B-Instruct on insurance chats (one RTX 4090), merged at the end by merge.py."""
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

BASE = "meta-llama/Llama-3.1-8B-Instruct"


def main():
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
            bnb_4bit_use_double_quant=True,
        ),
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
    )
    model.config.use_cache = False  # gradient checkpointing

    data = load_dataset("json", data_files={"train": "data/chats.train.jsonl", "val": "data/chats.val.jsonl"})
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=data["train"],
        eval_dataset=data["val"],
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        args=SFTConfig(
            output_dir="out/insurance-lora",
            num_train_epochs=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            learning_rate=1e-4,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            max_length=2048,
            assistant_only_loss=True,
            bf16=True,
            optim="paged_adamw_8bit",
            logging_steps=10,
            eval_strategy="steps",
            eval_steps=100,
            save_steps=100,
            save_total_limit=2,
            report_to="none",
        ),
    )
    trainer.train()
    trainer.save_model("out/insurance-lora")


if __name__ == "__main__":
    main()
