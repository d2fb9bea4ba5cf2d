import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from datamodule import StoryData

NAME = "meta-llama/Llama-3.2-3B"


class StoryModel(L.LightningModule):
    def __init__(self, lr=1e-4):
        super().__init__()
        self.lr = lr
        base = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
        lora = LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, lora)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=self.lr, weight_decay=0.0)


if __name__ == "__main__":
    L.seed_everything(5)
    data = StoryData(NAME, "data/stories.jsonl")
    module = StoryModel()
    L.Trainer(max_epochs=2, precision="bf16-mixed", gradient_clip_val=1.0).fit(module, datamodule=data)
    module.model.save_pretrained("out/stories")
    data.tok.save_pretrained("out/stories")
