import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import ChatData

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


class ChatModule(L.LightningModule):
    def __init__(self, lr=1e-4):
        super().__init__()
        self.lr = lr
        base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
        self.net = get_peft_model(
            base, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        )

    def training_step(self, batch, _):
        loss = self.net(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.net(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=self.lr)


def main():
    L.seed_everything(7, workers=True)
    tok = AutoTokenizer.from_pretrained(BASE, padding_side="right")
    module = ChatModule()
    trainer = L.Trainer(
        max_epochs=2, precision="bf16-mixed", gradient_clip_val=1.0, accumulate_grad_batches=2, devices=1
    )
    trainer.fit(module, ChatData(tok, "data"))
    module.net.save_pretrained("runs/chat-lora")
    tok.save_pretrained("runs/chat-lora")


if __name__ == "__main__":
    main()
