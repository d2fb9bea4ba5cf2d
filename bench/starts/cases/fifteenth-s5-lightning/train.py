import json

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

NAME = "meta-llama/Llama-3.2-1B-Instruct"
MAX_LEN = 2048


class Chats(Dataset):
    """tokenized once at start-up"""

    def __init__(self, path, tok):
        self.rows = []
        with open(path) as f:
            for line in f:
                msgs = json.loads(line)["messages"]
                full = tok.apply_chat_template(msgs, tokenize=True, return_dict=False)
                head = tok.apply_chat_template(
                    msgs[:-1], tokenize=True, add_generation_prompt=True, return_dict=False
                )
                if len(full) > MAX_LEN:
                    continue
                labels = [-100] * len(head) + full[len(head) :]
                self.rows.append((torch.tensor(full), torch.tensor(labels)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Data(L.LightningDataModule):
    def __init__(self, tok, batch_size=8):
        super().__init__()
        self.tok, self.batch_size = tok, batch_size
        self.pad = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")

    def setup(self, stage=None):
        self.train_set = Chats("data/train.jsonl", self.tok)
        self.val_set = Chats("data/val.jsonl", self.tok)

    def collate(self, rows):
        ids = pad_sequence([r[0] for r in rows], batch_first=True, padding_value=self.pad)
        labels = pad_sequence([r[1] for r in rows], batch_first=True, padding_value=-100)
        mask = pad_sequence([torch.ones_like(r[0]) for r in rows], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def train_dataloader(self):
        return DataLoader(
            self.train_set, self.batch_size, shuffle=True, collate_fn=self.collate,
            num_workers=6, pin_memory=True, persistent_workers=True,
        )

    def val_dataloader(self):
        return DataLoader(
            self.val_set, self.batch_size, collate_fn=self.collate,
            num_workers=6, pin_memory=True, persistent_workers=True,
        )


class SFT(L.LightningModule):
    def __init__(self, lr=1e-5, warmup=50):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="sdpa")
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.config.use_cache = False

    def configure_model(self):
        self.model.train()

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.model(**batch).loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.model.parameters(), lr=self.hparams.lr, weight_decay=0.01, fused=True)
        sched = get_cosine_schedule_with_warmup(
            opt, self.hparams.warmup, self.trainer.estimated_stepping_batches
        )
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    L.seed_everything(17)
    tok = AutoTokenizer.from_pretrained(NAME)
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=2,
        accumulate_grad_batches=4,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        val_check_interval=1.0,
        logger=CSVLogger("logs", name="llama1b-faq"),
        callbacks=[
            ModelCheckpoint(monitor="val_loss", save_top_k=1, save_weights_only=True),
            LearningRateMonitor("step"),
        ],
    )
    trainer.fit(SFT(), datamodule=Data(tok))


if __name__ == "__main__":
    main()
