import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class PoemLM(L.LightningModule):
    def __init__(self, name: str, lr: float = 1e-5, warmup: int = 100):
        super().__init__()
        self.save_hyperparameters()
        self.net = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        self.net.train()

    def forward(self, batch):
        return self.net(
            input_ids=batch["input_ids"][:, :-1],
            attention_mask=batch["attention_mask"][:, :-1],
            labels=batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100),
        )

    def training_step(self, batch, _):
        loss = self(batch).loss
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val/loss", self(batch).loss, batch_size=int(batch["attention_mask"].sum()), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        sched = get_cosine_schedule_with_warmup(opt, self.hparams.warmup, self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}
