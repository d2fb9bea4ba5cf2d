from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments

from collate import ChatCollator


@dataclass
class ModelArgs:
    model_name: str = field(default="meta-llama/Llama-3.2-3B-Instruct")
    pad_token: str = field(default="<|finetune_right_pad_id|>")
    train_file: str = field(default="data/chats.jsonl")
    max_length: int = field(default=1024)
    rank: int = field(default=16)


def main():
    margs, targs = HfArgumentParser((ModelArgs, TrainingArguments)).parse_args_into_dataclasses()
    targs.remove_unused_columns = False

    tok = AutoTokenizer.from_pretrained(margs.model_name, padding_side="right")
    tok.pad_token = margs.pad_token
    model = AutoModelForCausalLM.from_pretrained(margs.model_name, dtype=torch.bfloat16)
    model.config.pad_token_id = tok.pad_token_id
    lora = LoraConfig(
        r=margs.rank, lora_alpha=2 * margs.rank, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, lora)

    ds = load_dataset("json", data_files=margs.train_file, split="train").select_columns(["messages"])
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds,
        data_collator=ChatCollator(tok, margs.max_length),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
