import argparse
import json

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


class DeskData(Dataset):
    def __init__(self, path, tokenizer, max_length=768):
        self.tokenizer = tokenizer
        self.max_length = max_length
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        head = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": r["question"]}], tokenize=False, add_generation_prompt=True
        )
        head = self.tokenizer(head, add_special_tokens=False).input_ids
        tail = self.tokenizer(r["answer"] + "<|im_end|>\n", add_special_tokens=False).input_ids
        return (head + tail)[: self.max_length], ([-100] * len(head) + tail)[: self.max_length]


class Collate:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        n = max(len(x) for x, _ in rows)
        return {
            "input_ids": torch.tensor([x + [self.pad_id] * (n - len(x)) for x, _ in rows]),
            "attention_mask": torch.tensor([[1] * len(x) + [0] * (n - len(x)) for x, _ in rows]),
            "labels": torch.tensor([y + [-100] * (n - len(y)) for _, y in rows]),
        }


class DeskModule(L.LightningModule):
    def __init__(self, name, lr=2e-5, warmup=20):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32)

    def training_step(self, batch, _):
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        outputs = self.model(**batch)
        predictions = outputs.logits.argmax(dim=-1)
        keep = batch["labels"] != -100
        accuracy = (predictions[keep] == batch["labels"][keep]).float().mean()
        self.log("val_loss", outputs.loss, prog_bar=True, sync_dist=True)
        self.log("val_token_acc", accuracy, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = get_cosine_schedule_with_warmup(
            optimizer, self.hparams.warmup, self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-360M-Instruct")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()

    L.seed_everything(3)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    collate = Collate(tokenizer.pad_token_id)
    train = DataLoader(DeskData("data/train.jsonl", tokenizer), 8, shuffle=True, collate_fn=collate, num_workers=4)
    val = DataLoader(DeskData("data/val.jsonl", tokenizer), 8, collate_fn=collate, num_workers=4)

    trainer = L.Trainer(
        max_epochs=args.epochs,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=CSVLogger(".", name="lightning_logs"),
        callbacks=[ModelCheckpoint(monitor="val_loss"), LearningRateMonitor("step")],
    )
    trainer.fit(DeskModule(args.model), train, val)


if __name__ == "__main__":
    main()
