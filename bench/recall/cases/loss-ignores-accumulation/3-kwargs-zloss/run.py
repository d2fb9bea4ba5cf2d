import sys

import yaml
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, TrainingArguments, set_seed

from trainers import ZLossTrainer


def tokenized(path, tok, max_len):
    def fn(row):
        ids = tok(row["text"], add_special_tokens=False, truncation=True, max_length=max_len - 1)["input_ids"]
        ids = ids + [tok.eos_token_id]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": list(ids)}

    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(fn, remove_columns=ds.column_names)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        conf = yaml.safe_load(f)
    set_seed(conf["trainer"]["seed"])
    tok = AutoTokenizer.from_pretrained(conf["base"])
    trainer = ZLossTrainer(
        model=AutoModelForCausalLM.from_pretrained(conf["base"], dtype="float32"),
        args=TrainingArguments(**conf["trainer"]),
        train_dataset=tokenized(conf["train"], tok, conf["max_len"]),
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()
