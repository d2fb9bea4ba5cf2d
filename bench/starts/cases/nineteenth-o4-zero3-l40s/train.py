from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Opts:
    model: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    data: str = field(default="data/sft_train.parquet")
    out: str = field(default="runs/full")
    max_length: int = field(default=2048)


def main():
    (opts,) = HfArgumentParser(Opts).parse_args_into_dataclasses()

    args = SFTConfig(
        output_dir=opts.out,
        max_length=opts.max_length,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=8,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        num_train_epochs=2,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        logging_steps=5,
        save_strategy="epoch",
        save_total_limit=2,
        report_to="none",
    )

    tok = AutoTokenizer.from_pretrained(opts.model)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        opts.model,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        use_cache=False,
    )

    ds = load_dataset("parquet", data_files=opts.data, split="train")

    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=ds,
        processing_class=tok,
    )
    if trainer.accelerator.is_main_process:
        print(trainer.accelerator.state)
        n = sum(p.numel() for p in model.parameters() if p.requires_grad)
        print(f"trainable parameters: {n/1e9:.2f}B, rows: {len(ds)}")

    trainer.train()
    trainer.save_model(opts.out)


if __name__ == "__main__":
    main()
