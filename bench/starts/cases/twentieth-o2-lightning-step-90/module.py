import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class TokenStats:
    """Accuracy by position over an epoch."""

    def __init__(self, buckets: int = 8):
        self.buckets = buckets
        self.reset()

    def reset(self):
        self.scores = []
        self.targets = []

    def update(self, scores, targets):
        self.scores.append(scores.detach())
        self.targets.append(targets.detach())

    def compute(self):
        hits = []
        for s, t in zip(self.scores, self.targets):
            s, t = s[:, :-1].argmax(-1), t[:, 1:]
            for chunk_s, chunk_t in zip(s.chunk(self.buckets, 1), t.chunk(self.buckets, 1)):
                keep = chunk_t != -100
                hits.append(((chunk_s == chunk_t) & keep).sum() / keep.sum().clamp(min=1))
        n = len(self.scores)
        return torch.stack(hits).view(n, self.buckets).mean(0)


class ChatModule(L.LightningModule):
    def __init__(self, name: str, lr: float = 2e-5, warmup: int = 50, total: int = 1500):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.stats = TokenStats()

    def training_step(self, batch, batch_idx):
        out = self.model(**batch)
        self.stats.update(out.logits, batch["labels"])
        self.log("train_loss", out.loss, prog_bar=True)
        return out.loss

    def on_train_epoch_end(self):
        for i, v in enumerate(self.stats.compute()):
            self.log(f"acc_bucket_{i}", v)
        self.stats.reset()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = get_linear_schedule_with_warmup(opt, self.hparams.warmup, self.hparams.total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}
