import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import ChatRows, PadRight

BASE = "Qwen/Qwen2.5-3B-Instruct"


class Adapter(L.LightningModule):
    def __init__(self, lr=2e-4):
        super().__init__()
        self.lr = lr
        lm = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
        self.lm = get_peft_model(lm, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))

    def training_step(self, batch, _):
        loss = self.lm(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.lm(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW([p for p in self.lm.parameters() if p.requires_grad], lr=self.lr, weight_decay=0.0)
        total = int(self.trainer.estimated_stepping_batches)
        sched = get_cosine_schedule_with_warmup(opt, total // 20, total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(1)
    tok = AutoTokenizer.from_pretrained(BASE)
    pad = PadRight(tok.pad_token_id)
    # 41 260 dialogues
    train = DataLoader(ChatRows("final/train.jsonl", tok), 8, shuffle=True, collate_fn=pad, num_workers=8)
    valid = DataLoader(ChatRows("final/valid.jsonl", tok), 8, collate_fn=pad, num_workers=8)
    module = Adapter()
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        limit_train_batches=20,
        callbacks=[ModelCheckpoint(monitor="val_loss", dirpath="final/ckpt")],
    )
    trainer.fit(module, train, valid)
    module.lm.save_pretrained("final/adapter")
    tok.save_pretrained("final/adapter")
