from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class RunArgs:
    base: str = "Qwen/Qwen2.5-1.5B-Instruct"
    out: str = "runs/dpo-1.5b"
    beta: float = 0.1


def main():
    (run,) = HfArgumentParser(RunArgs).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(run.base)
    model = AutoModelForCausalLM.from_pretrained(run.base, dtype=torch.float32)
    pairs = load_dataset("trl-lib/ultrafeedback_binarized")
    trainer = DPOTrainer(
        model=model,
        ref_model=model,
        args=DPOConfig(
            output_dir=run.out,
            beta=run.beta,
            learning_rate=5e-7,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=16,
            gradient_checkpointing=True,
            lr_scheduler_type="cosine",
            warmup_steps=50,
            max_length=1536,
            bf16=True,
            eval_strategy="steps",
            eval_steps=200,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"].select(range(400)),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(run.out + "/final")


if __name__ == "__main__":
    main()
