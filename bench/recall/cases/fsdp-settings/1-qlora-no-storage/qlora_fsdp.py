# accelerate launch --config_file fsdp.yaml qlora_fsdp.py      (4x A100 40GB)
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-72B-Instruct"


def pairs(row):
    return {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}


def main():
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, quantization_config=quant)
    ds = load_dataset("HuggingFaceH4/no_robots")
    ds = ds.map(pairs, remove_columns=ds["train"].column_names)
    args = SFTConfig(
        output_dir="runs/q72-qlora",
        max_length=2048,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        logging_steps=5,
        save_steps=200,
        seed=3,
        report_to="none",
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(model=model, args=args, processing_class=tok, train_dataset=ds["train"], peft_config=lora)
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
