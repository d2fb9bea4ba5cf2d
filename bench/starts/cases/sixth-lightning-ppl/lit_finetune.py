"""PyTorch Lightning fine-tune of Llama-3.2-1B on short support dialogues."""
import json
import math

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

BASE = "meta-llama/Llama-3.2-1B"
MAX_LEN = 1024


class Dialogues(Dataset):
    def __init__(self, path, tokenizer):
        self.tokenizer = tokenizer
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        text = f"Customer: {row['question']}\nAgent: {row['answer']}" + self.tokenizer.eos_token
        enc = self.tokenizer(text, max_length=MAX_LEN, padding="max_length", truncation=True, return_tensors="pt")
        ids = enc["input_ids"][0]
        return {"input_ids": ids, "attention_mask": enc["attention_mask"][0], "labels": ids.clone()}


class Data(L.LightningDataModule):
    def __init__(self, tokenizer, batch_size=8):
        super().__init__()
        self.tokenizer, self.batch_size = tokenizer, batch_size

    def train_dataloader(self):
        return DataLoader(Dialogues("data/train.jsonl", self.tokenizer), self.batch_size, shuffle=True, num_workers=4)

    def val_dataloader(self):
        return DataLoader(Dialogues("data/val.jsonl", self.tokenizer), self.batch_size, num_workers=4)


class Finetuner(L.LightningModule):
    def __init__(self, lr=2e-5, total_steps=300):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(BASE)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("val_loss", loss, prog_bar=True, sync_dist=True)
        self.log("val_ppl", math.exp(min(20.0, loss.item())), prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = get_linear_schedule_with_warmup(optimizer, 15, self.hparams.planned_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    L.seed_everything(9)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=5,
        logger=CSVLogger("logs", name="dialogues"),
    )
    trainer.fit(Finetuner(), datamodule=Data(tokenizer))
    trainer.save_checkpoint("dialogues.ckpt")


if __name__ == "__main__":
    main()
