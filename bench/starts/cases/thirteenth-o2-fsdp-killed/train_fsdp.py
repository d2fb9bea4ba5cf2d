import os

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

rank = int(os.environ.get("LOCAL_RANK", 0))


def main():
    print(f"[rank {rank}] start, host {os.uname().nodename}, cuda:{rank}", flush=True)
    args = SFTConfig(
        output_dir="/scratch/runs/q32b",
        max_length=4096,
        packing=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        learning_rate=1e-5,
        num_train_epochs=2,
        warmup_ratio=0.03,
        lr_scheduler_type="cosine",
        bf16=True,
        logging_steps=5,
        save_strategy="epoch",
        save_total_limit=1,
        report_to="wandb",
    )
    name = "Qwen/Qwen2.5-32B-Instruct"
    tok = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(
        name,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        use_cache=False,
    )
    ds = load_dataset("json", data_files="/scratch/data/tickets/*.jsonl", split="train")
    trainer = SFTTrainer(model=model, args=args, train_dataset=ds, processing_class=tok)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
