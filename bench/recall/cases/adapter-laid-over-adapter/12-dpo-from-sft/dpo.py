import sys

import yaml
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

from loading import build_lora, load_policy, load_tokenizer


def read_config(path):
    with open(path) as fh:
        return yaml.safe_load(fh)


def main():
    cfg = read_config(sys.argv[1] if len(sys.argv) > 1 else "dpo.yaml")
    tokenizer = load_tokenizer(cfg)
    pairs = load_dataset("trl-lib/ultrafeedback_binarized")
    args = DPOConfig(output_dir=cfg["out"], **cfg["train"])
    trainer = DPOTrainer(
        model=load_policy(cfg),
        args=args,
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"].select(range(500)),
        processing_class=tokenizer,
        peft_config=build_lora(cfg["lora"]),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
