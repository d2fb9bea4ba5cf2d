import os
from dataclasses import dataclass

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import CPOConfig, CPOTrainer


@dataclass
class Args:
    model: str = "meta-llama/Meta-Llama-3-8B-Instruct"
    dataset: str = "princeton-nlp/llama3-ultrafeedback-armorm"
    out: str = "/fsx/runs/llama3-8b-simpo"
    lr: float = 2e-5
    beta: float = 2.5
    gamma: float = 1.25
    micro_batch: int = 2
    accum: int = 8
    epochs: float = 1.0


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    set_seed(42)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = "<|reserved_special_token_0|>"

    model = AutoModelForCausalLM.from_pretrained(
        args.model, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2", use_cache=False
    )

    ds = load_dataset(args.dataset)

    def to_pairs(ex):
        # chosen / rejected are [user, assistant]
        return {
            "prompt": ex["chosen"][:-1],
            "chosen": ex["chosen"][-1:],
            "rejected": ex["rejected"][-1:],
        }

    keep = ["prompt", "chosen", "rejected"]
    train = ds["train"].map(to_pairs, num_proc=16)
    train = train.remove_columns([c for c in train.column_names if c not in keep])
    test = ds["test"].map(to_pairs, num_proc=16)
    test = test.remove_columns([c for c in test.column_names if c not in keep])

    config = CPOConfig(
        output_dir=args.out,
        loss_type="simpo",
        cpo_alpha=0.0,
        beta=args.beta,
        simpo_gamma=args.gamma,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.micro_batch,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=args.accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        max_length=2048,
        max_prompt_length=1800,
        bf16=True,
        optim="adamw_torch",
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="epoch",
        save_only_model=True,
        report_to="none",
        remove_unused_columns=False,
    )

    trainer = CPOTrainer(
        model=model,
        args=config,
        train_dataset=train,
        eval_dataset=test,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(os.path.join(args.out, "final"))
    tokenizer.save_pretrained(os.path.join(args.out, "final"))


if __name__ == "__main__":
    main()
