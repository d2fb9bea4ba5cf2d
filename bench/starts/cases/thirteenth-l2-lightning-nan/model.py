import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class Tuner(L.LightningModule):
    def __init__(self, name: str, lr: float = 1e-5, warmup: int = 50, weight_decay: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa", dtype=torch.float32)
        self.net.gradient_checkpointing_enable()
        self.net.config.use_cache = False

    def training_step(self, batch, _):
        out = self.net(**batch)
        self.log("train/loss", out.loss, prog_bar=True, on_step=True)
        return out.loss

    def validation_step(self, batch, _):
        out = self.net(**batch)
        self.log("val/loss", out.loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.net.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)
        sch = get_linear_schedule_with_warmup(opt, self.hparams.warmup, self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sch, "interval": "step"}}
