import sys

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, HfArgumentParser, Trainer,
                          TrainingArguments)

BASE = "HuggingFaceTB/SmolLM2-1.7B-Instruct"


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def top_tokens(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(-1)


def score(eval_pred):
    guess = eval_pred.predictions[:, :-1]
    gold = eval_pred.label_ids[:, 1:]
    kept = gold != -100
    return {"token_accuracy": float((guess[kept] == gold[kept]).mean())}


def main(path):
    (targs,) = HfArgumentParser(TrainingArguments).parse_json_file(path)
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("openai/gsm8k", "main", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.train_test_split(test_size=0.05, seed=targs.seed)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        compute_metrics=score,
        preprocess_logits_for_metrics=top_tokens,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(targs.output_dir + "/best")


if __name__ == "__main__":
    main(sys.argv[1])
