import lightning as L
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import LetterData

NAME = "Qwen/Qwen2.5-3B-Instruct"


class LetterModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        base = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
        lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, lora)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)


if __name__ == "__main__":
    L.seed_everything(3)
    tok = AutoTokenizer.from_pretrained(NAME, padding_side="right")
    module = LetterModel()
    trainer = L.Trainer(max_epochs=2, precision="bf16-mixed", accumulate_grad_batches=4, gradient_clip_val=1.0)
    trainer.fit(module, datamodule=LetterData(tok, "data/letters_train.jsonl", "data/letters_val.jsonl"))
    module.model.save_pretrained("out/letters")
    tok.save_pretrained("out/letters")
