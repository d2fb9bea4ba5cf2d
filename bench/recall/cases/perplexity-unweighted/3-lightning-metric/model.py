import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


class DialogModel(L.LightningModule):
    def __init__(self, name: str, lr: float = 2e-4):
        super().__init__()
        self.save_hyperparameters()
        net = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        self.net = get_peft_model(
            net, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        self.net.train()

    def training_step(self, batch, _):
        loss = self.net(**batch).loss
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        loss = self.net(**batch).loss.float()
        self.log("val/ppl", loss.exp(), on_epoch=True, prog_bar=True, batch_size=batch["input_ids"].size(0))

    def configure_optimizers(self):
        return torch.optim.AdamW((p for p in self.parameters() if p.requires_grad), lr=self.hparams.lr)
