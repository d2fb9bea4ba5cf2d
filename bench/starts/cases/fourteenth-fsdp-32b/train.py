from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    train_file: str
    output_dir: str
    model: str = field(default="Qwen/Qwen2.5-32B-Instruct")
    lr: float = field(default=1e-5)


def main():
    (a,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(
        a.model, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    )
    model.config.use_cache = False
    data = load_dataset("json", data_files=a.train_file, split="train").select_columns(["messages"])
    data = data.train_test_split(test_size=200, seed=1)
    cfg = SFTConfig(
        output_dir=a.output_dir,
        num_train_epochs=2,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=4,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_length=4096,
        bf16=True,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        gradient_checkpointing=False,
        assistant_only_loss=False,
        report_to="tensorboard",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
