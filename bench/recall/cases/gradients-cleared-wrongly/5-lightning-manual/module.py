import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup


class AdapterModule(L.LightningModule):
    def __init__(self, base, lr=1e-4):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        lm = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
        self.lm = get_peft_model(
            lm, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        )

    def on_train_epoch_start(self):
        self.lm.train()

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        opt.zero_grad()
        loss = self.lm(**batch).loss
        self.manual_backward(loss)
        self.clip_gradients(opt, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        self.lr_schedulers().step()
        self.log("train_loss", loss, prog_bar=True)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.lm(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        params = [p for p in self.lm.parameters() if p.requires_grad]
        opt = torch.optim.AdamW(params, lr=self.hparams.lr, weight_decay=0.0)
        total = self.trainer.max_epochs * self.trainer.num_training_batches
        return [opt], [get_linear_schedule_with_warmup(opt, total // 20, total)]
