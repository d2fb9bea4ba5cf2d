import lightning as L
import torch
from omegaconf import DictConfig
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup


class ChatModule(L.LightningModule):
    def __init__(self, cfg: DictConfig):
        super().__init__()
        self.cfg = cfg
        backbone = AutoModelForCausalLM.from_pretrained(cfg.model.name, dtype=torch.bfloat16)
        backbone.config.use_cache = False
        backbone.gradient_checkpointing_enable()
        backbone.enable_input_require_grads()
        self.model = self._with_adapter(backbone)

    def _with_adapter(self, backbone):
        a = self.cfg.adapter
        if a.init_from:
            return PeftModel.from_pretrained(backbone, a.init_from, adapter_name="default")
        return get_peft_model(
            backbone,
            LoraConfig(
                r=a.r,
                lora_alpha=a.alpha,
                lora_dropout=a.dropout,
                target_modules=list(a.targets),
                task_type="CAUSAL_LM",
            ),
        )

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch).loss
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.model(**batch).loss, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.model.parameters(), lr=self.cfg.optim.lr, weight_decay=0.0)
        total = self.trainer.estimated_stepping_batches
        sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}

    def save(self, path):
        self.model.save_pretrained(path)
