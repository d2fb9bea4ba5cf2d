import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

from data import SupportData

MODEL = "Qwen/Qwen2.5-7B-Instruct"


class Tuner(L.LightningModule):
    def __init__(self, lr=1e-4, total_steps=6000):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
        base.config.use_cache = False
        self.model = get_peft_model(base, LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"))

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        params = [p for p in self.parameters() if p.requires_grad]
        opt = torch.optim.AdamW(params, lr=self.hparams.lr, weight_decay=0.0)
        sched = get_linear_schedule_with_warmup(opt, 150, self.hparams.planned_steps)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--devices", type=int, default=1)
    args = p.parse_args()
    L.seed_everything(7, workers=True)
    tok = AutoTokenizer.from_pretrained(MODEL)
    data = SupportData("/data/support/train.jsonl", "/data/support/val.jsonl", tok)
    trainer = L.Trainer(
        accelerator="gpu", devices=args.devices, strategy="ddp" if args.devices > 1 else "auto",
        precision="bf16-true", max_epochs=2, gradient_clip_val=1.0, log_every_n_steps=20,
        logger=CSVLogger("logs", name=f"gpus{args.devices}"),
        callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=1), LearningRateMonitor("step")],
    )
    trainer.fit(Tuner(), datamodule=data)
