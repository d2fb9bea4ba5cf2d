from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class RunArgs:
    base_model: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    previous_adapter: str = field(default="out/recipes_v1")
    train_file: str = field(default="data/recipes_v2.jsonl")
    max_length: int = field(default=1024)


def encode(row, tokenizer, max_length):
    question = [{"role": "user", "content": row["request"]}]
    full = question + [{"role": "assistant", "content": row["recipe"]}]
    prompt_text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    full_text = tokenizer.apply_chat_template(full, tokenize=False)
    prompt_ids = tokenizer(prompt_text, add_special_tokens=False)["input_ids"]
    ids = tokenizer(full_text, add_special_tokens=False)["input_ids"][:max_length]
    labels = [-100] * min(len(prompt_ids), len(ids)) + ids[len(prompt_ids):]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def build_model(run: RunArgs):
    model = AutoModelForCausalLM.from_pretrained(run.base_model, dtype=torch.bfloat16)
    model.load_adapter(run.previous_adapter, adapter_name="recipes")
    for name, param in model.named_parameters():
        if "lora_" in name:
            param.data = param.data.float()
    return model


def main():
    parser = HfArgumentParser((RunArgs, TrainingArguments))
    run, targs = parser.parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(run.base_model)
    model = build_model(run)

    data = load_dataset("json", data_files=run.train_file, split="train")
    data = data.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_length": run.max_length},
        remove_columns=data.column_names,
    )
    data = data.filter(lambda r: any(t != -100 for t in r["labels"]))

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=data,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train()
    model.save_pretrained(targs.output_dir)
    tokenizer.save_pretrained(targs.output_dir)


if __name__ == "__main__":
    main()
