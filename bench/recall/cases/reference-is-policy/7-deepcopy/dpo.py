import copy

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

BASE = "out/sft/final"


def snapshot(net):
    frozen = copy.deepcopy(net)
    return frozen.eval().requires_grad_(False)


def main():
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    ref_model = snapshot(model)
    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=DPOConfig(
            output_dir="out/dpo",
            beta=0.1,
            learning_rate=5e-7,
            num_train_epochs=1,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=16,
            max_length=1536,
            bf16=True,
            warmup_steps=30,
            logging_steps=5,
            save_strategy="epoch",
            report_to="none",
        ),
        train_dataset=load_dataset("json", data_files="pairs.jsonl", split="train"),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/dpo/final")


if __name__ == "__main__":
    main()
