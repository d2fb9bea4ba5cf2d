import json
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class ModelArgs:
    base: str = "meta-llama/Llama-3.1-8B-Instruct"
    tags: list[str] = field(default_factory=lambda: ["<plan>", "</plan>", "<sql>", "</sql>"])


@dataclass
class LoraArgs:
    r: int = 32
    alpha: int = 64
    dropout: float = 0.05
    targets: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )


def load(args: ModelArgs):
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.add_special_tokens({"additional_special_tokens": args.tags})
    model = AutoModelForCausalLM.from_pretrained(
        args.base, dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model.resize_token_embeddings(len(tokenizer))
    return model, tokenizer


def wrap(model, args: LoraArgs):
    config = LoraConfig(
        r=args.r,
        lora_alpha=args.alpha,
        lora_dropout=args.dropout,
        target_modules=args.targets,
        bias="none",
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config)
    model.print_trainable_parameters()
    return model


def main():
    model_args, lora_args, training = HfArgumentParser((ModelArgs, LoraArgs, SFTConfig)).parse_args_into_dataclasses()
    model, tokenizer = load(model_args)
    model = wrap(model, lora_args)
    model.enable_input_require_grads()
    rows = load_dataset("json", data_files="sql_train.jsonl", split="train")
    trainer = SFTTrainer(model=model, args=training, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(training.output_dir)
    print(json.dumps(trainer.state.log_history[-1]))


if __name__ == "__main__":
    main()
