import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class ChatModule(L.LightningModule):
    def __init__(self, base: str, lr: float = 1e-5, warmup: float = 0.06):
        super().__init__()
        self.save_hyperparameters()
        self.lm = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def on_train_epoch_start(self):
        self.lm.train()

    def training_step(self, batch, batch_idx):
        out = self.lm(**batch)
        self.log("loss", out.loss, prog_bar=True)
        return out.loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.lm(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        decay = [p for p in self.parameters() if p.ndim > 1]
        plain = [p for p in self.parameters() if p.ndim <= 1]
        opt = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
            lr=self.hparams.lr,
        )
        steps = int(self.trainer.estimated_stepping_batches)
        sched = get_linear_schedule_with_warmup(opt, int(steps * self.hparams.warmup), steps)
        return {"optimizer": opt, "lr_scheduler": sched}
