import lightning as L
from lightning.pytorch.loggers import CSVLogger
from transformers import AutoTokenizer

from datamodule import TicketData
from module import TicketModel

NAME = "HuggingFaceTB/SmolLM2-1.7B-Instruct"

if __name__ == "__main__":
    L.seed_everything(20)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    data = TicketData("tickets.jsonl", tokenizer, max_tokens=1024, batch_size=1)
    trainer = L.Trainer(
        max_epochs=3,
        precision="bf16-mixed",
        accumulate_grad_batches=8,
        gradient_clip_val=1.0,
        log_every_n_steps=1,
        logger=CSVLogger("logs", name="tickets"),
    )
    trainer.fit(TicketModel(NAME), datamodule=data)
