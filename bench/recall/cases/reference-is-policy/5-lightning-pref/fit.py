import lightning as L
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from pref_module import PreferenceModule

NAME = "Qwen/Qwen2.5-1.5B-Instruct"
tok = AutoTokenizer.from_pretrained(NAME)


def one(prompt, answer):
    head = tok.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return (a + b)[:1024], ([-100] * len(a) + b)[:1024]


def collate(rows):
    seqs = [one(r["chosen"][:-1], r["chosen"][-1]["content"]) for r in rows]
    seqs += [one(r["rejected"][:-1], r["rejected"][-1]["content"]) for r in rows]
    w = max(len(s) for s, _ in seqs)
    return {
        "input_ids": torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs]),
        "attention_mask": torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs]),
        "labels": torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs]),
    }


if __name__ == "__main__":
    L.seed_everything(1)
    ds = load_dataset("trl-lib/ultrafeedback_binarized", split="train").select(range(10000))
    trainer = L.Trainer(
        max_epochs=1, accelerator="gpu", devices=1, precision="bf16-mixed", gradient_clip_val=1.0,
        accumulate_grad_batches=8,
    )
    module = PreferenceModule(NAME)
    trainer.fit(module, DataLoader(ds, batch_size=2, shuffle=True, collate_fn=collate))
    module.net.save_pretrained("out/pref-lora")
    tok.save_pretrained("out/pref-lora")
