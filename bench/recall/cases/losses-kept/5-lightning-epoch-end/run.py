import lightning as L
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from module import Tuner

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    L.seed_everything(7)
    tok = AutoTokenizer.from_pretrained(NAME)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    ds = load_from_disk("data/tokenized")
    train = DataLoader(ds["train"], batch_size=8, shuffle=True, num_workers=2, collate_fn=collate)
    val = DataLoader(ds["validation"], batch_size=8, num_workers=2, collate_fn=collate)
    module = Tuner(NAME)
    trainer = L.Trainer(max_epochs=2, precision="bf16-mixed", gradient_clip_val=1.0, log_every_n_steps=10)
    trainer.fit(module, train, val)
    module.model.save_pretrained("out/tuner")
    tok.save_pretrained("out/tuner")


if __name__ == "__main__":
    main()
