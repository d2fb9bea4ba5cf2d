import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import Collate, Reports

NAME = "Qwen/Qwen2.5-0.5B-Instruct"


class Summariser(L.LightningModule):
    def __init__(self, lr=1e-5):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.float32)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=self.hparams.lr)

    def on_train_start(self):
        self.model.train()


if __name__ == "__main__":
    L.seed_everything(5)
    tok = AutoTokenizer.from_pretrained(NAME)
    dl = DataLoader(Reports("reports.jsonl", tok), batch_size=1, shuffle=True, num_workers=4, collate_fn=Collate(tok.pad_token_id))
    trainer = L.Trainer(
        max_epochs=2, precision="bf16-mixed", accumulate_grad_batches=8, gradient_clip_val=1.0,
        log_every_n_steps=1, logger=CSVLogger("logs"), devices=1,
    )
    trainer.fit(Summariser(), dl)
