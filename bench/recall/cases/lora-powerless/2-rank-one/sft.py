from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


@dataclass
class Hyper:
    base: str = "Qwen/Qwen3-8B"
    rows: str = "trl-lib/Capybara"
    out: str = "runs/q8"
    lr: float = 1e-4
    lora_r: int = 1
    lora_alpha: int = 2
    lora_on: list[str] = field(default_factory=lambda: ["q_proj"])


def main(h: Hyper):
    tok = AutoTokenizer.from_pretrained(h.base)
    model = AutoModelForCausalLM.from_pretrained(h.base, dtype=torch.bfloat16)
    ds = load_dataset(h.rows)
    args = SFTConfig(
        output_dir=h.out,
        assistant_only_loss=True,
        max_length=2048,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        learning_rate=h.lr,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        seed=1,
        report_to="none",
    )
    lora = LoraConfig(
        r=h.lora_r,
        lora_alpha=h.lora_alpha,
        lora_dropout=0.05,
        target_modules=h.lora_on,
        task_type="CAUSAL_LM",
    )
    trainer = SFTTrainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=lora,
    )
    trainer.model.print_trainable_parameters()
    trainer.train()
    trainer.save_model(h.out)


if __name__ == "__main__":
    main(Hyper())
