import lightning as L
from datasets import load_from_disk
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from module import LitLoRA

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    L.seed_everything(1)
    tok = AutoTokenizer.from_pretrained(NAME)
    ds = load_from_disk("data/tokenized")
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=8, shuffle=True, num_workers=2, collate_fn=collate)
    val = DataLoader(ds["validation"], batch_size=8, num_workers=2, collate_fn=collate)
    module = LitLoRA(NAME)
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(monitor="val/loss", mode="min")],
    )
    trainer.fit(module, train, val)
    module.model.save_pretrained("out/lit")
    tok.save_pretrained("out/lit")


if __name__ == "__main__":
    main()
