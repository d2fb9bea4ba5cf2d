import json

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-360M-Instruct"
SYSTEM = "Parse the address into JSON with the keys name, unit, number, street, city, postcode."


class Addresses(Dataset):
    def __init__(self, path, tok):
        self.rows = [json.loads(line) for line in open(path)]
        self.tok = tok

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["raw"]}]
        prompt = self.tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        p = self.tok(prompt, add_special_tokens=False).input_ids
        a = self.tok(row["parsed"] + "<|im_end|>\n", add_special_tokens=False).input_ids
        return {"input_ids": p + a, "labels": [-100] * len(p) + a}


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        n = max(len(b["input_ids"]) for b in batch)
        pad = lambda xs, v: torch.tensor([x + [v] * (n - len(x)) for x in xs])
        ids = [b["input_ids"] for b in batch]
        return {
            "input_ids": pad(ids, self.pad_id),
            "attention_mask": pad([[1] * len(x) for x in ids], 0),
            "labels": pad([b["labels"] for b in batch], -100),
        }


class Parser(L.LightningModule):
    def __init__(self, name=MODEL, lr=5e-5, compile_model=True):
        super().__init__()
        self.save_hyperparameters()
        lm = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32)
        self.lm = torch.compile(lm, dynamic=True) if compile_model else lm

    def training_step(self, batch, _):
        loss = self.lm(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.lm(**batch).loss, prog_bar=True, batch_size=len(batch["input_ids"]))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        total = self.trainer.estimated_stepping_batches
        sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(7)
    tok = AutoTokenizer.from_pretrained(MODEL)
    collate = Collate(tok.pad_token_id)
    train = DataLoader(Addresses("data/train.jsonl", tok), batch_size=16, shuffle=True, collate_fn=collate, num_workers=4)
    val = DataLoader(Addresses("data/val.jsonl", tok), batch_size=16, collate_fn=collate, num_workers=4)
    trainer = L.Trainer(
        max_epochs=4,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=CSVLogger("logs", name="addresses"),
        callbacks=[ModelCheckpoint("ckpt", filename="best", monitor="val_loss", save_weights_only=True)],
    )
    trainer.fit(Parser(), train, val)
