import lightning as L
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class TicketModel(L.LightningModule):
    def __init__(self, name, lr=1e-5, warmup=10):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        self.model.gradient_checkpointing_enable()

    def training_step(self, batch, batch_idx):
        logits = self.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        target = batch["input_ids"][:, 1:]
        weight = batch["loss_mask"][:, 1:].float()
        token_loss = F.cross_entropy(logits[:, :-1].float().transpose(1, 2), target, reduction="none")
        loss = (token_loss * weight).sum() / weight.sum()
        self.log("train_loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = get_cosine_schedule_with_warmup(optimizer, self.hparams.warmup, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
