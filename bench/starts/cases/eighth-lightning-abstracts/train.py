import lightning as L
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from module import AbstractData, AbstractLM

MODEL = "EleutherAI/pythia-410m"

if __name__ == "__main__":
    L.seed_everything(1)
    data = AbstractData("data/abstracts_train.txt", "data/abstracts_val.txt", MODEL)
    model = AbstractLM(MODEL, lr=3e-5, warmup=100, total_steps=4000)
    trainer = L.Trainer(
        max_steps=4000,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        gradient_clip_val=1.0,
        log_every_n_steps=20,
        val_check_interval=400,
        check_val_every_n_epoch=None,
        logger=CSVLogger("logs", name="abstracts"),
        callbacks=[
            LearningRateMonitor("step"),
            ModelCheckpoint("ckpt", monitor="val_loss", save_top_k=1),
        ],
    )
    trainer.fit(model, data)
