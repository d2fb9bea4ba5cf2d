"""Pick a run up again from its saved adapter (e.g. after the job was preempted)."""
import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def restore(base_name: str, run_dir: str):
    lora = LoraConfig.from_pretrained(run_dir)
    model = AutoModelForCausalLM.from_pretrained(base_name, dtype=torch.bfloat16)
    model = get_peft_model(model, lora)
    weights = load_file(os.path.join(run_dir, "adapter_model.safetensors"))
    result = set_peft_model_state_dict(model, weights)
    print("unexpected keys:", result.unexpected_keys)
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="mistralai/Mistral-7B-Instruct-v0.3")
    ap.add_argument("--run", default="/scratch/runs/minutes-lora")
    ap.add_argument("--out", default="/scratch/runs/minutes-lora-cont")
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.run)
    model = restore(args.base, args.run)

    dataset = load_dataset("json", data_files={"train": "data/minutes.jsonl", "dev": "data/minutes_dev.jsonl"})
    dataset = dataset.select_columns(["prompt", "completion"])

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=args.out,
            max_length=4096,
            learning_rate=1e-4,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=10,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=16,
            gradient_checkpointing=True,
            num_train_epochs=1,
            bf16=True,
            eval_strategy="steps",
            eval_steps=100,
            save_steps=100,
            logging_steps=10,
            report_to="tensorboard",
        ),
        train_dataset=dataset["train"],
        eval_dataset=dataset["dev"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
