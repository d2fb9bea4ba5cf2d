import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


class Tuner(L.LightningModule):
    def __init__(self, name, lr=2e-4, rank=16):
        super().__init__()
        self.save_hyperparameters()
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        config = LoraConfig(
            r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        self.model = get_peft_model(model, config)
        self.step_outputs = []

    def training_step(self, batch, batch_idx):
        out = self.model(**batch)
        self.step_outputs.append({"loss": out.loss, "n": (batch["labels"][:, 1:] != -100).sum()})
        self.log("train_loss", out.loss, prog_bar=True)
        return out.loss

    def on_train_epoch_end(self):
        loss = torch.stack([o["loss"] for o in self.step_outputs])
        n = torch.stack([o["n"] for o in self.step_outputs])
        self.log("train_loss_per_token", (loss * n).sum() / n.sum())
        self.step_outputs.clear()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        params = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.AdamW(params, lr=self.hparams.lr, weight_decay=0.0)
