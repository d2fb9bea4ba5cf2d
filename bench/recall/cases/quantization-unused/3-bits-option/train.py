import argparse

from datasets import load_dataset
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

from load import build


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-14B-Instruct")
    ap.add_argument("--bits", type=int, choices=[4, 8, 16], default=4)
    ap.add_argument("--data", default="radiology.jsonl")
    a = ap.parse_args()
    model, tok = build(a.base, a.bits)

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["findings"]}], tokenize=False, add_generation_prompt=True
        )
        x = tok(head, add_special_tokens=False)["input_ids"]
        y = tok(row["impression"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": x + y, "attention_mask": [1] * len(x + y), "labels": [-100] * len(x) + y}

    ds = load_dataset("json", data_files=a.data, split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="out/radiology", learning_rate=1e-4, num_train_epochs=2, per_device_train_batch_size=2,
            gradient_accumulation_steps=8, gradient_checkpointing=True, bf16=True, warmup_steps=30,
            logging_steps=10, save_strategy="epoch", report_to="none",
        ),
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model("out/radiology/adapter")


if __name__ == "__main__":
    main()
