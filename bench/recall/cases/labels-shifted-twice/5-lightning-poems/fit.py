import lightning as L
from datasets import load_dataset
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from module import PoemLM

NAME = "Qwen/Qwen2.5-0.5B"


def loaders(tok, bs):
    raw = load_dataset("text", data_files={"train": "poems_train.txt", "val": "poems_val.txt"}, sample_by="paragraph")

    def collate(rows):
        texts = [r["text"] + tok.eos_token for r in rows]
        return tok(texts, padding=True, truncation=True, max_length=512, return_tensors="pt", add_special_tokens=False)

    train = DataLoader(raw["train"], batch_size=bs, shuffle=True, collate_fn=collate, num_workers=4)
    val = DataLoader(raw["val"], batch_size=bs, collate_fn=collate, num_workers=4)
    return train, val


if __name__ == "__main__":
    L.seed_everything(3, workers=True)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    tokenizer.padding_side = "right"
    train_dl, val_dl = loaders(tokenizer, 8)
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(monitor="val/loss", mode="min")],
    )
    trainer.fit(PoemLM(NAME), train_dl, val_dl)
