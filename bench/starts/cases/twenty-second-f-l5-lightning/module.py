import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class ChatModule(L.LightningModule):
    def __init__(self, name, lr=2e-5, weight_decay=0.01, warmup=30):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)

    def forward(self, **batch):
        return self.model(**batch)

    def training_step(self, batch, batch_idx):
        loss = self(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(**batch).loss, prog_bar=True, batch_size=batch["input_ids"].shape[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)
        scheduler = get_cosine_schedule_with_warmup(
            optimizer, self.hparams.warmup, int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [scheduler]
