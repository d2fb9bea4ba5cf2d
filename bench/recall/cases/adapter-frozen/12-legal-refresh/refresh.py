import sys

import yaml
from datasets import load_dataset
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments, set_seed

from loading import Start, encode


class Refresh:
    """Takes last quarter's clause summariser and shows it this quarter's contracts."""

    def __init__(self, path):
        with open(path) as f:
            self.cfg = yaml.safe_load(f)
        set_seed(self.cfg["seed"])
        self.start = Start(self.cfg["checkpoint"], self.cfg["max_length"])
        self.tok = self.start.tokenizer()

    def split(self, name):
        ds = load_dataset("json", data_files=self.cfg[name], split="train")
        ds = ds.map(lambda r: encode(self.tok, r, self.start.max_length), remove_columns=ds.column_names)
        return ds.filter(lambda r: len(r["input_ids"]) <= self.start.max_length)

    def run(self):
        args = TrainingArguments(
            output_dir=self.cfg["output_dir"],
            learning_rate=float(self.cfg["learning_rate"]),
            num_train_epochs=self.cfg["epochs"],
            per_device_train_batch_size=4,
            gradient_accumulation_steps=8,
            bf16=True,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_steps=10,
            report_to="none",
        )
        trainer = Trainer(
            model=self.start.model(),
            args=args,
            train_dataset=self.split("train_file"),
            eval_dataset=self.split("valid_file"),
            data_collator=DataCollatorForSeq2Seq(self.tok, padding=True),
            processing_class=self.tok,
        )
        trainer.train()
        trainer.save_model()


if __name__ == "__main__":
    Refresh(sys.argv[1]).run()
