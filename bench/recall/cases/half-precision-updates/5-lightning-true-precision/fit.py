import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import ChatRows, PadRight

BASE = "Qwen/Qwen2.5-0.5B-Instruct"


class Tuner(L.LightningModule):
    def __init__(self, base=BASE, lr=1e-5):
        super().__init__()
        self.save_hyperparameters()
        self.net = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def training_step(self, batch, _):
        loss = self.net(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.net(**batch).loss, prog_bar=True, sync_dist=True)

    def on_train_epoch_start(self):
        self.net.train()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        total = int(self.trainer.estimated_stepping_batches)
        sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    L.seed_everything(23)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    pad = PadRight(tokenizer.pad_token_id)
    train = DataLoader(ChatRows("recipes_train.jsonl", tokenizer), 4, shuffle=True, collate_fn=pad, num_workers=4)
    valid = DataLoader(ChatRows("recipes_valid.jsonl", tokenizer), 4, collate_fn=pad, num_workers=4)
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=3,
        precision="16-true",
        accumulate_grad_batches=4,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(monitor="val_loss"), LearningRateMonitor("step")],
    )
    tuner = Tuner()
    trainer.fit(tuner, train, valid)
    tuner.net.save_pretrained("recipes-qwen")
    tokenizer.save_pretrained("recipes-qwen")


if __name__ == "__main__":
    main()
