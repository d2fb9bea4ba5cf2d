import lightning as L
import torch
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class SFTModule(L.LightningModule):
    def __init__(self, name="Qwen/Qwen2.5-0.5B-Instruct", lr=2e-5, warmup=50):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        self.model.train()
        self.model.gradient_checkpointing_enable()
        self.model.config.use_cache = False
        self.epoch_outputs = []

    def training_step(self, batch, batch_idx):
        out = self.model(**batch)
        self.log("train_loss", out.loss, prog_bar=True)
        self.log("gpu_gb", torch.cuda.memory_allocated() / 2**30, prog_bar=True)
        self.epoch_outputs.append({"logits": out.logits.detach(), "labels": batch["labels"]})
        return out.loss

    def on_train_epoch_end(self):
        hit = n = 0
        for o in self.epoch_outputs:
            pred = o["logits"][:, :-1].argmax(-1)
            lab = o["labels"][:, 1:]
            m = lab != -100
            hit += (pred[m] == lab[m]).sum().item()
            n += m.sum().item()
        self.log("train_token_acc", hit / max(n, 1))
        self.epoch_outputs.clear()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        total = self.trainer.estimated_stepping_batches
        sched = get_cosine_schedule_with_warmup(opt, self.hparams.warmup, total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}
