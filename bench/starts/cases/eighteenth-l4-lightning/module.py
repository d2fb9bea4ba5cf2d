import lightning as L
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup


class LMModule(L.LightningModule):
    def __init__(self, model_name="Qwen/Qwen3-0.6B", lr=2e-5, weight_decay=0.01, warmup_steps=50):
        super().__init__()
        self.save_hyperparameters()
        self.tokenizer = AutoTokenizer.from_pretrained(model_name)
        self.model = AutoModelForCausalLM.from_pretrained(model_name, dtype=torch.float32)
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def forward(self, batch):
        return self.model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            labels=batch["labels"],
        )

    def on_train_epoch_start(self):
        self.model.train()

    def training_step(self, batch, batch_idx):
        out = self(batch)
        tokens = (batch["labels"] != -100).sum()
        self.log("train_loss", out.loss, prog_bar=True, on_step=True)
        self.log("tokens", tokens.float(), on_step=True, reduce_fx="sum")

    def validation_step(self, batch, batch_idx):
        out = self(batch)
        self.log("val_loss", out.loss, prog_bar=True, sync_dist=True, batch_size=len(batch["input_ids"]))
        return out.loss

    def configure_optimizers(self):
        decay, no_decay = [], []
        for name, param in self.model.named_parameters():
            if not param.requires_grad:
                continue
            (no_decay if param.ndim < 2 else decay).append(param)
        optimizer = torch.optim.AdamW(
            [
                {"params": decay, "weight_decay": self.hparams.weight_decay},
                {"params": no_decay, "weight_decay": 0.0},
            ],
            lr=self.hparams.lr,
        )
        scheduler = get_linear_schedule_with_warmup(
            optimizer, self.hparams.warmup_steps, self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
