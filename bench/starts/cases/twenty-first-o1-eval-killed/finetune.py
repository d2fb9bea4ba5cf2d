import json
from dataclasses import dataclass, field

import numpy as np
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
class ModelArgs:
    model_name: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    train_file: str = field(default="data/train.jsonl")
    val_file: str = field(default="data/val.jsonl")
    max_len: int = field(default=1024)


def build(tok, path, max_len):
    def enc(ex):
        msgs = ex["messages"]
        p = tok.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
        t = tok.apply_chat_template(msgs, tokenize=False)
        p_ids = tok(p, add_special_tokens=False)["input_ids"]
        ids = tok(t, add_special_tokens=False)["input_ids"][:max_len]
        labels = ([-100] * len(p_ids) + ids[len(p_ids):])[: len(ids)]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(enc, remove_columns=ds.column_names, num_proc=8)


def compute_metrics(p):
    preds = np.argmax(p.predictions, axis=-1)[:, :-1]
    labels = p.label_ids[:, 1:]
    m = labels != -100
    return {"token_accuracy": float((preds[m] == labels[m]).mean())}


def main():
    margs, targs = HfArgumentParser((ModelArgs, TrainingArguments)).parse_args_into_dataclasses()
    tok = AutoTokenizer.from_pretrained(margs.model_name)
    model = AutoModelForCausalLM.from_pretrained(margs.model_name, dtype="bfloat16")
    model.config.use_cache = False
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=build(tok, margs.train_file, margs.max_len),
        eval_dataset=build(tok, margs.val_file, margs.max_len),
        data_collator=DataCollatorForSeq2Seq(tok, padding="max_length", max_length=margs.max_len),
        processing_class=tok,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
