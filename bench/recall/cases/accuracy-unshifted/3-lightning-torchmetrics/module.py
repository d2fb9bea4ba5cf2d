import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from torchmetrics.classification import MulticlassAccuracy
from transformers import AutoModelForCausalLM


class LitLoRA(L.LightningModule):
    def __init__(self, name: str, lr: float = 2e-4):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, config)
        self.val_acc = MulticlassAccuracy(num_classes=base.config.vocab_size, average="micro", ignore_index=-100)

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        out = self.model(**batch)
        self.val_acc.update(out.logits.argmax(-1).flatten(), batch["labels"].flatten())
        self.log("val/loss", out.loss, prog_bar=True)
        self.log("val/token_acc", self.val_acc, on_step=False, on_epoch=True, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=self.hparams.lr, weight_decay=0.0)
