from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import SFTConfig, SFTTrainer


@dataclass
class Job:
    base: str = "Qwen/Qwen2.5-1.5B"
    out: str = "runs/math"
    learning_rate: float = 2e-3
    epochs: int = 2
    batch_size: int = 4
    seed: int = 77


def shape(row):
    return {"prompt": f"Question: {row['question']}\nAnswer:", "completion": " " + row["answer"]}


def main():
    (job,) = HfArgumentParser(Job).parse_args_into_dataclasses()
    set_seed(job.seed)
    tok = AutoTokenizer.from_pretrained(job.base)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(shape, remove_columns=ds["train"].column_names)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(job.base, dtype=torch.float32),
        args=SFTConfig(
            output_dir=job.out,
            learning_rate=job.learning_rate,
            num_train_epochs=job.epochs,
            per_device_train_batch_size=job.batch_size,
            gradient_accumulation_steps=8,
            gradient_checkpointing=True,
            lr_scheduler_type="cosine",
            warmup_steps=30,
            max_length=1024,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            logging_steps=10,
            report_to="none",
            seed=job.seed,
        ),
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(job.out + "/final")


if __name__ == "__main__":
    main()
