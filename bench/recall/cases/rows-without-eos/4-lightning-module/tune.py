import json

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

CFG = {
    "base": "EleutherAI/pythia-1.4b",
    "template": "<question>{question}</question>\n<answer>{answer}",
    "split_at": "<answer>",
    "lr": 2e-4,
    "batch": 8,
    "epochs": 2,
}


def encode(tok, row):
    text = CFG["template"].format(**row)
    cut = text.index(CFG["split_at"]) + len(CFG["split_at"])
    head = tok(text[:cut], add_special_tokens=False)["input_ids"]
    tail = tok(text[cut:], add_special_tokens=False)["input_ids"]
    return {
        "input_ids": head + tail,
        "attention_mask": [1] * (len(head) + len(tail)),
        "labels": [-100] * len(head) + tail,
    }


class Tuner(L.LightningModule):
    def __init__(self):
        super().__init__()
        base = AutoModelForCausalLM.from_pretrained(CFG["base"], dtype=torch.bfloat16)
        self.net = get_peft_model(
            base, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
        )

    def training_step(self, batch, _):
        loss = self.net(**batch).loss
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val/loss", self.net(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=CFG["lr"])
        total = int(self.trainer.estimated_stepping_batches)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG["lr"], total_steps=total, pct_start=0.05)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def loader(tok, path, shuffle=False):
    rows = [encode(tok, json.loads(x)) for x in open(path)]
    collate = DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100)
    return DataLoader(rows, CFG["batch"], shuffle=shuffle, collate_fn=collate)


if __name__ == "__main__":
    L.seed_everything(13)
    tok = AutoTokenizer.from_pretrained(CFG["base"])
    tok.pad_token = "<|padding|>"
    tuner = Tuner()
    trainer = L.Trainer(
        max_epochs=CFG["epochs"],
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        accumulate_grad_batches=2,
        callbacks=[ModelCheckpoint("ckpt", monitor="val/loss"), LearningRateMonitor()],
    )
    trainer.fit(tuner, loader(tok, "data/train.jsonl", True), loader(tok, "data/val.jsonl"))
    tuner.net.save_pretrained("out/pythia-qa")
    tok.save_pretrained("out/pythia-qa")
