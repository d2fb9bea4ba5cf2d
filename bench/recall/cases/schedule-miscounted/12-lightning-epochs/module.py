import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class Tuner(L.LightningModule):
    def __init__(self, name, lr=1e-4, warmup_share=0.05):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        self.model = get_peft_model(base, LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"))

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=self.hparams.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        sched = get_linear_schedule_with_warmup(opt, int(self.hparams.warmup_share * steps), steps)
        return [opt], [sched]
