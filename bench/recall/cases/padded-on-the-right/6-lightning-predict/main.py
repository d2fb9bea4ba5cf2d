import json

import lightning as L
from data import ReviewData
from lightning.pytorch.callbacks import ModelCheckpoint
from module import Writer

NAME = "Qwen/Qwen2.5-0.5B-Instruct"

if __name__ == "__main__":
    L.seed_everything(8)
    dm = ReviewData(NAME)
    net = Writer(NAME)
    best = ModelCheckpoint("ckpt", monitor="val_loss", mode="min")
    trainer = L.Trainer(
        max_epochs=2,
        precision="bf16-mixed",
        devices=1,
        accumulate_grad_batches=4,
        gradient_clip_val=1.0,
        callbacks=[best],
    )
    trainer.fit(net, datamodule=dm)
    batches = trainer.predict(net, datamodule=dm, ckpt_path="best")
    with open("replies.json", "w") as f:
        json.dump([text for b in batches for text in b], f, indent=1)
