import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from data import Tickets
from module import LMModule

if __name__ == "__main__":
    L.seed_everything(17)
    torch.set_float32_matmul_precision("high")
    module = LMModule()
    data = Tickets(module.tokenizer)
    trainer = L.Trainer(
        max_epochs=4,
        precision="bf16-mixed",
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=CSVLogger("."),
        callbacks=[
            ModelCheckpoint(monitor="val_loss", save_top_k=1),
            LearningRateMonitor("step"),
        ],
    )
    trainer.fit(module, datamodule=data)
