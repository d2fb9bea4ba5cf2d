from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from torch.optim import AdamW
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, get_cosine_schedule_with_warmup
from trl import SFTConfig, SFTTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    train_file: str = field(default="data/contracts.jsonl")
    lora_r: int = field(default=16)
    beta2: float = field(default=0.95)


def main():
    parser = HfArgumentParser((ScriptArguments, SFTConfig))
    script, cfg = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script.model_name)
    model = AutoModelForCausalLM.from_pretrained(script.model_name, dtype=torch.bfloat16)
    ds = load_dataset("json", data_files=script.train_file, split="train")
    ds = ds.select_columns(["prompt", "completion"])

    effective = cfg.per_device_train_batch_size * cfg.gradient_accumulation_steps
    total_steps = int(cfg.num_train_epochs * len(ds) / effective)
    optimizer = AdamW(model.parameters(), lr=cfg.learning_rate, betas=(0.9, script.beta2), weight_decay=0.0)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * total_steps), total_steps)

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=script.lora_r,
            lora_alpha=2 * script.lora_r,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
        optimizers=(optimizer, scheduler),
    )
    trainer.train()
    trainer.save_model(cfg.output_dir)
    tokenizer.save_pretrained(cfg.output_dir)


if __name__ == "__main__":
    main()
