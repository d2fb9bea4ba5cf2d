import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from datasets import load_dataset
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from module import SFTModule

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    L.seed_everything(7)
    tok = AutoTokenizer.from_pretrained(NAME)

    def enc(r):
        p = tok.apply_chat_template([{"role": "user", "content": r["q"]}], tokenize=False, add_generation_prompt=True)
        p = tok(p, add_special_tokens=False).input_ids
        a = tok(r["a"], add_special_tokens=False).input_ids + [tok.eos_token_id]
        return {"input_ids": p + a, "labels": [-100] * len(p) + a, "attention_mask": [1] * (len(p) + len(a))}

    ds = load_dataset("json", data_files={"train": "train.jsonl", "val": "val.jsonl"})
    ds = ds.map(enc, remove_columns=["q", "a"], num_proc=8)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024)
    collate = DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=8, shuffle=True, num_workers=4, collate_fn=collate)
    val = DataLoader(ds["val"], batch_size=8, num_workers=4, collate_fn=collate)

    trainer = L.Trainer(
        max_epochs=4,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        log_every_n_steps=25,
        logger=CSVLogger("logs", name="qwen15"),
        callbacks=[LearningRateMonitor(logging_interval="step"), ModelCheckpoint(monitor="val_loss")],
    )
    trainer.fit(SFTModule(NAME), train, val)


if __name__ == "__main__":
    main()
