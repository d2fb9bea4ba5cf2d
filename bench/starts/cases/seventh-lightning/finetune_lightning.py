"""Stage 2: instruction tuning of our own domain model (Qwen2.5-1.5B, stage 1 = continued pretraining).

    python finetune_lightning.py --stage1 checkpoints/stage1-dapt/last.ckpt | tee lightning.log
"""
import argparse
import json
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "Qwen/Qwen2.5-1.5B"


class Instructions(Dataset):
    def __init__(self, path, tokenizer, max_length=1024):
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tokenizer(f"### Question\n{row['question']}\n\n### Answer\n")["input_ids"]
        answer = self.tokenizer(row["answer"])["input_ids"] + [self.tokenizer.eos_token_id]
        return {
            "input_ids": (prompt + answer)[: self.max_length],
            "labels": ([-100] * len(prompt) + answer)[: self.max_length],
        }


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        longest = max(len(r["input_ids"]) for r in rows)
        ids, labels, mask = [], [], []
        for r in rows:
            fill = longest - len(r["input_ids"])
            ids.append(r["input_ids"] + [self.pad_id] * fill)
            labels.append(r["labels"] + [-100] * fill)
            mask.append([1] * len(r["input_ids"]) + [0] * fill)
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels), "attention_mask": torch.tensor(mask)}


class Tuner(L.LightningModule):
    def __init__(self, stage1, lr=2e-5, warmup=0.03):
        super().__init__()
        self.save_hyperparameters()
        config = AutoConfig.from_pretrained(BASE)
        self.net = AutoModelForCausalLM.from_config(config)
        self.net.gradient_checkpointing_enable()
        self.load_stage1(stage1)

    def load_stage1(self, path):
        # the checkpoint of stage 1 was written by its own LightningModule (attribute `model`)
        state = torch.load(path, map_location="cpu", weights_only=False)["state_dict"]
        result = self.net.load_state_dict(state, strict=False)
        print(f"loaded {path}: missing {len(result.missing_keys)}, unexpected {len(result.unexpected_keys)}")
        if result.unexpected_keys:
            print("  e.g.", result.unexpected_keys[0])

    def training_step(self, batch, _):
        loss = self.net(**batch).loss
        self.log("train_loss", loss, prog_bar=True, on_step=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.net(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, betas=(0.9, 0.95), weight_decay=0.1)
        total = self.trainer.estimated_stepping_batches
        scheduler = get_cosine_schedule_with_warmup(optimizer, int(self.hparams.warmup * total), total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stage1", default="checkpoints/stage1-dapt/last.ckpt")
    p.add_argument("--train", default="data/instructions_train.jsonl")
    p.add_argument("--valid", default="data/instructions_valid.jsonl")
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()

    L.seed_everything(17)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    collate = Collate(tokenizer.pad_token_id)
    train = DataLoader(Instructions(args.train, tokenizer), batch_size=8, shuffle=True, collate_fn=collate, num_workers=4)
    valid = DataLoader(Instructions(args.valid, tokenizer), batch_size=8, collate_fn=collate, num_workers=4)

    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        accumulate_grad_batches=4,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        val_check_interval=0.5,
        logger=CSVLogger("logs", name="stage2"),
        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=1), LearningRateMonitor()],
    )
    trainer.fit(Tuner(args.stage1), train, valid)


if __name__ == "__main__":
    main()
