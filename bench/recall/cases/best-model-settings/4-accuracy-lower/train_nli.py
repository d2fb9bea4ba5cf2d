import sys

import numpy as np
from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

BASE = "microsoft/deberta-v3-base"


def score(pred):
    guess = np.argmax(pred.predictions, axis=-1)
    return {"accuracy": float((guess == pred.label_ids).mean())}


def prepare(tok):
    ds = load_dataset("nyu-mll/glue", "rte")

    def enc(b):
        return tok(b["sentence1"], b["sentence2"], truncation=True, max_length=320)

    return ds.map(enc, batched=True, remove_columns=["sentence1", "sentence2", "idx"])


def main(path):
    (args,) = HfArgumentParser(TrainingArguments).parse_json_file(path)
    tok = AutoTokenizer.from_pretrained(BASE)
    ds = prepare(tok)
    model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=2)
    trainer = Trainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        data_collator=DataCollatorWithPadding(tok),
        compute_metrics=score,
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main(sys.argv[1])
