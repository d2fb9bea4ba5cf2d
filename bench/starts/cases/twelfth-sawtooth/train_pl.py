import json
from argparse import ArgumentParser

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class ChatRows(Dataset):
    def __init__(self, path, tokenizer, max_length):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        *prompt, answer = self.rows[i]["messages"]
        text = self.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        a = self.tokenizer(text, add_special_tokens=False).input_ids
        b = self.tokenizer(answer["content"] + "<|im_end|>", add_special_tokens=False).input_ids
        return (a + b)[: self.max_length], ([-100] * len(a) + b)[: self.max_length]


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, batch):
        n = max(len(ids) for ids, _ in batch)
        return {
            "input_ids": torch.tensor([ids + [self.pad_id] * (n - len(ids)) for ids, _ in batch]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (n - len(ids)) for ids, _ in batch]),
            "labels": torch.tensor([lab + [-100] * (n - len(lab)) for _, lab in batch]),
        }


class ChatData(L.LightningDataModule):
    def __init__(self, path, tokenizer, batch_size, max_length):
        super().__init__()
        self.path, self.tokenizer = path, tokenizer
        self.batch_size, self.max_length = batch_size, max_length

    def setup(self, stage=None):
        self.train_rows = ChatRows(self.path, self.tokenizer, self.max_length)

    def train_dataloader(self):
        return DataLoader(
            self.train_rows,
            batch_size=self.batch_size,
            num_workers=4,
            pin_memory=True,
            drop_last=True,
            collate_fn=Collate(self.tokenizer.pad_token_id),
        )


class Tuner(L.LightningModule):
    def __init__(self, name, lr, total_steps):
        super().__init__()
        self.save_hyperparameters()
        base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
        lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = get_peft_model(base, lora)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        params = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(params, lr=self.hparams.lr, weight_decay=0.0)
        scheduler = get_cosine_schedule_with_warmup(
            optimizer, int(0.05 * self.hparams.planned_steps), self.hparams.planned_steps
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    p = ArgumentParser()
    p.add_argument("--model", default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    p.add_argument("--data", default="data/train.jsonl")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-4)
    args = p.parse_args()

    L.seed_everything(7)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    data = ChatData(args.data, tokenizer, args.batch_size, 1024)
    rows = sum(1 for _ in open(args.data))
    total = rows // args.batch_size * args.epochs
    model = Tuner(args.model, args.lr, total)

    trainer = L.Trainer(
        max_epochs=args.epochs,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=1,
        logger=CSVLogger(".", name="logs"),
        callbacks=[LearningRateMonitor("step"), ModelCheckpoint(dirpath="ckpt", save_last=True)],
    )
    trainer.fit(model, datamodule=data)
    model.model.save_pretrained("out/multitask-lora")
    tokenizer.save_pretrained("out/multitask-lora")


if __name__ == "__main__":
    main()
