import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from data import ChatData
from module import AnswerWithConfidence

if __name__ == "__main__":
    L.seed_everything(17, workers=True)
    trainer = L.Trainer(
        accelerator="gpu",
        devices=2,
        strategy="ddp",
        precision="bf16-mixed",
        max_epochs=2,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=CSVLogger("logs"),
        callbacks=[ModelCheckpoint(monitor="val/loss", mode="min"), LearningRateMonitor("step")],
    )
    trainer.fit(AnswerWithConfidence(), datamodule=ChatData("data/train.jsonl", "data/val.jsonl", batch_size=4))
