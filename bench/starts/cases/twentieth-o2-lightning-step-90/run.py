import lightning as L
from lightning.pytorch.loggers import CSVLogger

from data import ChatData
from module import ChatModule

NAME = "HuggingFaceTB/SmolLM2-360M-Instruct"

if __name__ == "__main__":
    L.seed_everything(1)
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        accelerator="gpu",
        devices=1,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        callbacks=[L.pytorch.callbacks.DeviceStatsMonitor()],
        logger=CSVLogger("logs"),
    )
    trainer.fit(ChatModule(NAME), ChatData(NAME, "chats.jsonl", "chats_val.jsonl"))
