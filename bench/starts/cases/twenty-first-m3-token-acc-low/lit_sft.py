import json

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-360M-Instruct"
MAX_LEN = 768


class Chats(Dataset):
    def __init__(self, path, tok):
        self.tok = tok
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line)["messages"] for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        msgs = self.rows[i]
        prompt = self.tok.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
        full = self.tok.apply_chat_template(msgs, tokenize=False)
        p = self.tok(prompt, add_special_tokens=False)["input_ids"]
        ids = self.tok(full, add_special_tokens=False)["input_ids"][:MAX_LEN]
        labels = [-100] * min(len(p), len(ids)) + ids[len(p) :]
        return torch.tensor(ids), torch.tensor(labels)


def collate(batch):
    n = max(len(x) for x, _ in batch)
    ids = torch.full((len(batch), n), 2)
    labels = torch.full((len(batch), n), -100)
    mask = torch.zeros((len(batch), n), dtype=torch.long)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = x
        labels[i, : len(y)] = y
        mask[i, : len(x)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class LitSFT(L.LightningModule):
    def __init__(self, lr=2e-5, warmup=50, total=1200):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(MODEL)
        vocab = self.model.config.vocab_size
        self.train_acc = MulticlassAccuracy(vocab, average="micro", ignore_index=-100)
        self.val_acc = MulticlassAccuracy(vocab, average="micro", ignore_index=-100)

    def shared(self, batch, acc):
        out = self.model(**batch)
        acc(out.logits.argmax(-1).flatten(), batch["labels"].flatten())
        return out.loss

    def training_step(self, batch, _):
        loss = self.shared(batch, self.train_acc)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", self.train_acc)
        return loss

    def validation_step(self, batch, _):
        loss = self.shared(batch, self.val_acc)
        self.log("val_loss", loss, prog_bar=True, batch_size=len(batch["input_ids"]))
        self.log("val_acc", self.val_acc, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        sched = get_linear_schedule_with_warmup(opt, self.hparams.warmup, self.hparams.total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(5)
    tok = AutoTokenizer.from_pretrained(MODEL)
    train = DataLoader(Chats("train.jsonl", tok), batch_size=8, shuffle=True, collate_fn=collate, num_workers=4)
    val = DataLoader(Chats("val.jsonl", tok), batch_size=8, collate_fn=collate, num_workers=2)
    trainer = L.Trainer(
        max_steps=1200,
        precision="bf16-mixed",
        accumulate_grad_batches=1,
        gradient_clip_val=1.0,
        val_check_interval=150,
        check_val_every_n_epoch=None,
        log_every_n_steps=50,
        logger=CSVLogger("logs", name="smollm"),
        callbacks=[ModelCheckpoint(monitor="val_acc", mode="max", save_top_k=1)],
    )
    trainer.fit(LitSFT(), train, val)
