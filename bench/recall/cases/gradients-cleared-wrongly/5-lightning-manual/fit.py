import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from module import AdapterModule
from rows import ChatRows, PadRight

BASE = "Qwen/Qwen2.5-3B-Instruct"

if __name__ == "__main__":
    L.seed_everything(7)
    tok = AutoTokenizer.from_pretrained(BASE)
    pad = PadRight(tok.pad_token_id)
    train = DataLoader(ChatRows("train.jsonl", tok), batch_size=8, shuffle=True, collate_fn=pad)
    valid = DataLoader(ChatRows("valid.jsonl", tok), batch_size=8, collate_fn=pad)
    module = AdapterModule(BASE)
    trainer = L.Trainer(max_epochs=2, accelerator="gpu", devices=1, precision="bf16-mixed", log_every_n_steps=10)
    trainer.fit(module, train, valid)
    module.lm.save_pretrained("adapter")
    tok.save_pretrained("adapter")
