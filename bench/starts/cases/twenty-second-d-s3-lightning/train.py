import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

from data import ChatData, DataConfig

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


class Tuner(L.LightningModule):
    def __init__(self, lr=1e-5):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
        self.model.gradient_checkpointing_enable()
        self.model.config.use_cache = False
        self.model.train()

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        total = self.trainer.estimated_stepping_batches
        sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(13)
    torch.set_float32_matmul_precision("high")
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=20,
        logger=CSVLogger("logs"),
        callbacks=[ModelCheckpoint(monitor="val_loss", save_weights_only=True)],
    )
    trainer.fit(Tuner(), datamodule=ChatData(BASE, DataConfig()))
