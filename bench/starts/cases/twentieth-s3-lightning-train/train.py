import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

from data import SupportData

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


class Tuner(L.LightningModule):
    def __init__(self, lr=1e-5, warmup=50):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(
            MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
        )
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model.config.use_cache = False

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        sched = get_cosine_schedule_with_warmup(opt, self.hparams.warmup, self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(11)
    trainer = L.Trainer(
        max_epochs=2, accelerator="gpu", devices=1, precision="bf16-true",
        accumulate_grad_batches=4, gradient_clip_val=1.0, log_every_n_steps=20,
        logger=CSVLogger("logs"), callbacks=[ModelCheckpoint(monitor="val_loss", save_weights_only=True)],
    )
    model = Tuner()
    model.model.train()
    trainer.fit(model, datamodule=SupportData(MODEL))
