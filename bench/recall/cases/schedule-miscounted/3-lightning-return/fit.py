import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from module import ChatModule
from rows import ChatRows, PadRight

BASE = "HuggingFaceTB/SmolLM2-360M-Instruct"


def main():
    L.seed_everything(12)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    pad = PadRight(tokenizer.pad_token_id)
    train = DataLoader(ChatRows("train.jsonl", tokenizer), 8, shuffle=True, collate_fn=pad)
    valid = DataLoader(ChatRows("valid.jsonl", tokenizer), 8, collate_fn=pad)
    module = ChatModule(BASE)
    trainer = L.Trainer(max_epochs=3, precision="bf16-mixed", accumulate_grad_batches=2, gradient_clip_val=1.0)
    trainer.fit(module, train, valid)
    module.lm.save_pretrained("smol-chat")
    tokenizer.save_pretrained("smol-chat")


if __name__ == "__main__":
    main()
