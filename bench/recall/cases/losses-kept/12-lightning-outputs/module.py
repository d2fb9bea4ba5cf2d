import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class ChatTuner(L.LightningModule):
    def __init__(self, name: str, lr: float = 1e-4, warmup: int = 50):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                          target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, lora)
        self.train_losses = []
        self.best = float("inf")

    def forward(self, **batch):
        return self.model(**batch)

    def training_step(self, batch, batch_idx):
        out = self(**batch)
        self.train_losses.append(out.loss)
        self.log("train/loss", out.loss, prog_bar=True)
        return out.loss

    def on_train_epoch_end(self):
        mean = torch.stack(self.train_losses).mean()
        self.best = min(self.best, mean.item())
        self.log("train/epoch_loss", mean)
        self.train_losses.clear()

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        params = [p for p in self.parameters() if p.requires_grad]
        opt = torch.optim.AdamW(params, lr=self.hparams.lr)
        sched = get_linear_schedule_with_warmup(
            opt, self.hparams.warmup, self.trainer.estimated_stepping_batches
        )
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}
