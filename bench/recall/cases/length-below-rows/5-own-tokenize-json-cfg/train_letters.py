import json
import sys

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments


class RowEncoder:
    def __init__(self, tok, window):
        self.tok = tok
        self.window = window

    def __call__(self, row):
        msgs = [{"role": "user", "content": row["prompt"]}]
        head = self.tok.apply_chat_template(msgs, add_generation_prompt=True, tokenize=False)
        head_ids = self.tok(head, add_special_tokens=False)["input_ids"]
        tail_ids = self.tok(row["completion"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        ids = (head_ids + tail_ids)[: self.window]
        labels = ([-100] * len(head_ids) + tail_ids)[: self.window]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def main(path):
    cfg = json.load(open(path))
    tok = AutoTokenizer.from_pretrained(cfg["base"])
    model = AutoModelForCausalLM.from_pretrained(cfg["base"], dtype=torch.float32)
    raw = load_dataset("json", data_files=cfg["rows"], split="train").train_test_split(0.15, seed=1)
    enc = raw.map(RowEncoder(tok, cfg["window"]), remove_columns=raw["train"].column_names)
    args = TrainingArguments(
        output_dir=cfg["out"],
        learning_rate=cfg["lr"],
        num_train_epochs=cfg["epochs"],
        per_device_train_batch_size=cfg["batch"],
        gradient_accumulation_steps=cfg["accumulate"],
        gradient_checkpointing=True,
        lr_scheduler_type="cosine",
        warmup_steps=1,
        bf16=True,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        seed=1,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=args,
        processing_class=tok,
        train_dataset=enc["train"],
        eval_dataset=enc["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
    )
    trainer.train()
    trainer.save_model(cfg["out"])


if __name__ == "__main__":
    main(sys.argv[1])
