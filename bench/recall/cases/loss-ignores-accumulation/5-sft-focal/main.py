from dataclasses import dataclass

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, TrlParser

from focal import FocalSFTTrainer


@dataclass
class Own:
    base: str = "Qwen/Qwen2.5-3B-Instruct"
    data: str = "intents.jsonl"
    gamma: float = 1.5


def main():
    own, cfg = TrlParser((Own, SFTConfig)).parse_args_and_config()
    trainer = FocalSFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(own.base, dtype="bfloat16"),
        args=cfg,
        # columns: prompt, completion (conversational)
        train_dataset=load_dataset("json", data_files=own.data, split="train"),
        processing_class=AutoTokenizer.from_pretrained(own.base),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        gamma=own.gamma,
    )
    trainer.train()
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
