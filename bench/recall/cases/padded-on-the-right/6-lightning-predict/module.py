import lightning as L
import torch
from transformers import AutoModelForCausalLM


class Writer(L.LightningModule):
    def __init__(self, name, lr=1e-5, max_new_tokens=150):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def predict_step(self, batch, _):
        self.model.eval()
        tok = self.trainer.datamodule.tok
        out = self.model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            max_new_tokens=self.hparams.max_new_tokens,
            do_sample=False,
            pad_token_id=tok.pad_token_id,
        )
        return tok.batch_decode(out[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=self.hparams.lr, weight_decay=0.01)
