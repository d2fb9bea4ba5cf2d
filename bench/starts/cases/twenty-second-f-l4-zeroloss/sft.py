from dataclasses import dataclass

from datasets import load_dataset
from peft import LoraConfig
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    train_file: str = "data/rag_train.jsonl"
    lora_r: int = 16


def to_chat(row):
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "completion": [{"role": "assistant", "content": row["completion"]}],
    }


if __name__ == "__main__":
    args, config = HfArgumentParser((Args, SFTConfig)).parse_args_into_dataclasses()
    data = load_dataset("json", data_files=args.train_file, split="train").map(to_chat)
    config.model_init_kwargs = {"dtype": "bfloat16", "attn_implementation": "flash_attention_2"}
    trainer = SFTTrainer(
        model=args.model,
        args=config,
        train_dataset=data,
        peft_config=LoraConfig(r=args.lora_r, lora_alpha=2 * args.lora_r, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()
