"""Recipe writer: GPT-style fine-tuning of SmolLM2-360M with Lightning."""
import json
import pathlib

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "HuggingFaceTB/SmolLM2-360M"
MAX_LEN = 768


class Recipes(Dataset):
    def __init__(self, path, tokenizer):
        self.tok = tokenizer
        self.rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        head = f"Ingredients: {row['ingredients']}\nRecipe:"
        head_ids = self.tok(head, add_special_tokens=False)["input_ids"]
        body_ids = self.tok(" " + row["recipe"], add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]
        ids = (head_ids + body_ids)[:MAX_LEN]
        labels = ([-100] * len(head_ids) + body_ids)[:MAX_LEN]
        return {"input_ids": ids, "labels": labels}


def collate(batch, pad_id):
    width = max(len(b["input_ids"]) for b in batch)
    ids = torch.full((len(batch), width), pad_id)
    labels = torch.full((len(batch), width), -100)
    mask = torch.zeros((len(batch), width), dtype=torch.long)
    for i, b in enumerate(batch):
        n = len(b["input_ids"])
        ids[i, :n] = torch.tensor(b["input_ids"])
        labels[i, :n] = torch.tensor(b["labels"])
        mask[i, :n] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class RecipeWriter(L.LightningModule):
    def __init__(self, lr=2e-5, warmup=20, total=180):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.float32)

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    def _loss(self, batch):
        logits = self(batch["input_ids"], batch["attention_mask"])
        return F.cross_entropy(
            logits.reshape(-1, logits.size(-1)),
            batch["labels"].reshape(-1),
            ignore_index=-100,
        )

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        sched = get_cosine_schedule_with_warmup(opt, self.hparams.warmup, self.hparams.total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    L.seed_everything(3)
    tok = AutoTokenizer.from_pretrained(BASE)
    pad_id = tok.convert_tokens_to_ids("<|endoftext|>")
    make = lambda name, shuffle: DataLoader(
        Recipes(name, tok), batch_size=8, shuffle=shuffle, num_workers=4, collate_fn=lambda b: collate(b, pad_id)
    )
    module = RecipeWriter()
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=L.pytorch.loggers.CSVLogger("logs", name="recipes"),
    )
    trainer.fit(module, make("recipes_train.jsonl", True), make("recipes_val.jsonl", False))
    module.model.save_pretrained("recipe-writer")
    tok.save_pretrained("recipe-writer")


if __name__ == "__main__":
    main()
