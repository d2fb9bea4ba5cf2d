import lightning as L
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from model import DialogModel

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    L.seed_everything(12)
    tok = AutoTokenizer.from_pretrained(NAME)

    def encode(row):
        head = tok.apply_chat_template(row["turns"][:-1], tokenize=False, add_generation_prompt=True)
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["turns"][-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    raw = load_dataset("json", data_files={"train": "train.jsonl", "val": "val.jsonl"})
    data = raw.map(encode, remove_columns=raw["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    trainer = L.Trainer(
        max_epochs=2, accelerator="gpu", devices=1, precision="bf16-mixed", gradient_clip_val=1.0,
        accumulate_grad_batches=2, log_every_n_steps=10,
    )
    trainer.fit(
        DialogModel(NAME),
        DataLoader(data["train"], batch_size=4, shuffle=True, collate_fn=collate),
        DataLoader(data["val"], batch_size=8, collate_fn=collate),
    )


if __name__ == "__main__":
    main()
