import argparse

import lightning as L
import torch
import yaml
from datasets import load_dataset
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from model import Tuner


def tokenise(row, tok, max_len):
    prompt = tok.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    full = tok.apply_chat_template(row["messages"], tokenize=False)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    f = tok(full, add_special_tokens=False)["input_ids"][:max_len]
    labels = [-100] * min(len(p), len(f)) + f[len(p):]
    return {"input_ids": f, "attention_mask": [1] * len(f), "labels": labels}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    L.seed_everything(cfg["seed"])

    tok = AutoTokenizer.from_pretrained(cfg["model"])
    ds = load_dataset("json", data_files={"train": cfg["train"], "val": cfg["val"]})
    ds = ds.map(lambda r: tokenise(r, tok, cfg["max_len"]), remove_columns=ds["train"].column_names)
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"]))
    collate = DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=cfg["batch_size"], shuffle=True, num_workers=4, collate_fn=collate)
    val = DataLoader(ds["val"], batch_size=cfg["batch_size"], num_workers=4, collate_fn=collate)

    trainer = L.Trainer(
        max_epochs=cfg["epochs"],
        accelerator="gpu",
        devices=1,
        precision=cfg["precision"],
        accumulate_grad_batches=cfg["accumulate"],
        gradient_clip_val=1.0,
        log_every_n_steps=5,
        val_check_interval=0.5,
        logger=CSVLogger("logs", name="sum"),
        callbacks=[
            LearningRateMonitor("step"),
            ModelCheckpoint(monitor="val/loss", save_top_k=1, save_weights_only=True),
        ],
    )
    torch.set_float32_matmul_precision("high")
    trainer.fit(Tuner(cfg["model"], cfg["lr"], cfg["warmup"], cfg["weight_decay"]), train, val)


if __name__ == "__main__":
    main()
