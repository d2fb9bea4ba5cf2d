import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from data_module import ChatData
from module import ChatModule

NAME = "Qwen/Qwen2.5-0.5B-Instruct"

L.seed_everything(3)
trainer = L.Trainer(
    max_epochs=3,
    accelerator="gpu",
    devices=1,
    precision="bf16-mixed",
    gradient_clip_val=1.0,
    log_every_n_steps=10,
    val_check_interval=0.5,
    logger=CSVLogger("logs", name="chat"),
    callbacks=[ModelCheckpoint(monitor="val_loss", save_top_k=1)],
)
trainer.fit(ChatModule(NAME), ChatData(NAME))
