from dataclasses import dataclass

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class Run:
    model: str = "outputs/sft-merged"
    pairs: str = "pairs.jsonl"
    rank: int = 32


def main():
    run, args = HfArgumentParser((Run, DPOConfig)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    model = AutoModelForCausalLM.from_pretrained(run.model, torch_dtype="bfloat16")
    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=load_dataset("json", data_files=run.pairs, split="train"),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=run.rank, lora_alpha=2 * run.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
