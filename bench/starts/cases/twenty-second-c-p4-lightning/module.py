import lightning as L
import torch
from torch import nn
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class AnswerWithConfidence(L.LightningModule):
    """Causal LM that also predicts the rating an annotator gave to the answer."""

    def __init__(self, name="Qwen/Qwen2.5-1.5B-Instruct", lr=1e-5, rating_weight=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.lm = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        self.lm.config.use_cache = False
        h = self.lm.config.hidden_size
        self.rating = nn.Sequential(nn.Linear(h, h // 4), nn.GELU(), nn.Linear(h // 4, 1))

    def forward(self, input_ids, attention_mask, labels):
        return self.lm(input_ids=input_ids, attention_mask=attention_mask, labels=labels, output_hidden_states=True)

    def training_step(self, batch, _):
        out = self(batch["input_ids"], batch["attention_mask"], batch["labels"])
        loss = out.loss
        rated = batch["rating"] >= 0
        if rated.any():
            last = batch["attention_mask"].sum(1) - 1
            h = out.hidden_states[-1][torch.arange(len(last), device=last.device), last]
            r = self.rating(h[rated].float()).squeeze(-1)
            aux = nn.functional.mse_loss(r, batch["rating"][rated])
            self.log("train/rating", aux, prog_bar=True, batch_size=int(rated.sum()))
            loss = loss + self.hparams.rating_weight * aux
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        out = self(batch["input_ids"], batch["attention_mask"], batch["labels"])
        self.log("val/loss", out.loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        total = self.trainer.estimated_stepping_batches
        return {"optimizer": opt, "lr_scheduler": {
            "scheduler": get_linear_schedule_with_warmup(opt, int(0.05 * total), total), "interval": "step"}}
