import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class SFTModule(L.LightningModule):
    def __init__(self, name: str, lr: float = 2e-5, warmup_steps: int = 300, weight_decay: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32)
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def on_train_start(self):
        self.model.train()

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        decay = [p for n, p in self.model.named_parameters() if p.ndim > 1]
        no_decay = [p for n, p in self.model.named_parameters() if p.ndim <= 1]
        optimizer = torch.optim.AdamW(
            [
                {"params": decay, "weight_decay": self.hparams.weight_decay},
                {"params": no_decay, "weight_decay": 0.0},
            ],
            lr=self.hparams.lr,
        )
        scheduler = get_cosine_schedule_with_warmup(
            optimizer, self.hparams.warmup_steps, int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [scheduler]
