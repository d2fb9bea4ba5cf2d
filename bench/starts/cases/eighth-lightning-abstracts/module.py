"""Lightning module: continue Pythia-410m on abstracts of our institute (title -> abstract)."""
import lightning as L
import torch
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    get_cosine_schedule_with_warmup,
)


class Blocks(Dataset):
    """Packs the texts into blocks of block_size + 1 tokens."""

    def __init__(self, texts, tokenizer, block_size):
        ids = []
        for text in texts:
            ids.extend(tokenizer(text)["input_ids"] + [tokenizer.eos_token_id])
        n = (len(ids) - 1) // block_size
        self.ids = torch.tensor(ids[: n * block_size + 1])
        self.block = block_size

    def __len__(self):
        return (len(self.ids) - 1) // self.block

    def __getitem__(self, i):
        piece = self.ids[i * self.block : (i + 1) * self.block + 1]
        # inputs and targets: the target is the next token
        return {"x": piece[:-1].clone(), "y": piece[1:].clone()}


class AbstractData(L.LightningDataModule):
    def __init__(self, train_file, val_file, model_name, block_size=512, batch_size=8):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        tok = AutoTokenizer.from_pretrained(self.hparams.model_name)

        def read(path):
            with open(path, encoding="utf-8") as f:
                return [t.strip() for t in f.read().split("\n\n") if t.strip()]

        self.train = Blocks(read(self.hparams.train_file), tok, self.hparams.block_size)
        self.val = Blocks(read(self.hparams.val_file), tok, self.hparams.block_size)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.hparams.batch_size, shuffle=True, num_workers=4)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.hparams.batch_size, num_workers=2)


class AbstractLM(L.LightningModule):
    def __init__(self, model_name="EleutherAI/pythia-410m", lr=3e-5, warmup=100, total_steps=4000):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(model_name)
        self.model.train()

    def training_step(self, batch, batch_idx):
        out = self.model(input_ids=batch["x"], labels=batch["y"])
        self.log("train_loss", out.loss, prog_bar=True)
        return out.loss

    def validation_step(self, batch, batch_idx):
        out = self.model(input_ids=batch["x"], labels=batch["y"])
        self.log("val_loss", out.loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = AdamW(self.parameters(), lr=self.hparams.lr, betas=(0.9, 0.95), weight_decay=0.1)
        scheduler = get_cosine_schedule_with_warmup(
            optimizer, self.hparams.warmup, self.hparams.planned_steps
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
