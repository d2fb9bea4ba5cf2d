from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model: str = "google/gemma-3-1b-it"
    data: str = "recipes.jsonl"
    out: str = "gemma-recipes"
    lr: float = field(default=1e-4)
    epochs: int = 2


def main():
    (a,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, torch_dtype=torch.bfloat16, attn_implementation="eager")
    ds = load_dataset("json", data_files=a.data, split="train")
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=a.out, num_train_epochs=a.epochs, learning_rate=a.lr, bf16=True,
            per_device_train_batch_size=4, gradient_accumulation_steps=4, max_length=1024,
            warmup_ratio=0.03, lr_scheduler_type="cosine", logging_steps=5, save_strategy="epoch", report_to="none",
        ),
        train_dataset=ds,
        processing_class=tok,
        peft_config=LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.model.merge_and_unload().save_pretrained(a.out + "/merged")
    tok.save_pretrained(a.out + "/merged")


if __name__ == "__main__":
    main()
