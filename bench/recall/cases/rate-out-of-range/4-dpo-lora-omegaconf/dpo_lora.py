import sys

import torch
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def load(path, overrides):
    return OmegaConf.merge(OmegaConf.load(path), OmegaConf.from_cli(overrides))


def build_args(cfg):
    return DPOConfig(
        output_dir=cfg.run.out,
        learning_rate=cfg.optim.lr,
        lr_scheduler_type=cfg.optim.schedule,
        warmup_steps=cfg.optim.warmup,
        beta=cfg.optim.beta,
        num_train_epochs=cfg.run.epochs,
        per_device_train_batch_size=cfg.run.per_device,
        gradient_accumulation_steps=cfg.run.accumulate,
        gradient_checkpointing=True,
        max_length=2048,
        bf16=True,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        seed=8,
        report_to="none",
    )


def main():
    cfg = load("conf/dpo.yaml", sys.argv[1:])
    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name, dtype=torch.bfloat16)
    train = load_dataset(cfg.data.name, split="train").shuffle(seed=8).select(range(cfg.data.limit))
    test = load_dataset(cfg.data.name, split="test")
    peft_cfg = LoraConfig(
        r=cfg.lora.r,
        lora_alpha=cfg.lora.alpha,
        lora_dropout=cfg.lora.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    trainer = DPOTrainer(
        model=model,
        args=build_args(cfg),
        processing_class=tok,
        train_dataset=train,
        eval_dataset=test,
        peft_config=peft_cfg,
    )
    trainer.train()
    trainer.save_model(cfg.run.out)


if __name__ == "__main__":
    main()
