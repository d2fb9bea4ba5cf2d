import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from pref import PreferenceTuner

BASE = "Qwen/Qwen2.5-1.5B-Instruct"


def side(tok, prompt, answer):
    head = tok.apply_chat_template([{"role": "user", "content": prompt}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return torch.tensor(p + a), torch.tensor([-100] * len(p) + a)


def collate(rows, tok):
    batch = {}
    for name in ("chosen", "rejected"):
        ids, labels = zip(*[side(tok, r["prompt"], r[name]) for r in rows])
        batch[f"{name}_input_ids"] = pad_sequence(ids, True, tok.pad_token_id)
        batch[f"{name}_labels"] = pad_sequence(labels, True, -100)
        batch[f"{name}_attention_mask"] = pad_sequence([torch.ones_like(i) for i in ids], True, 0)
    return batch


def main():
    set_seed(6)
    acc = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                             task_type="CAUSAL_LM"))
    rows = load_dataset("json", data_files="pairs.jsonl", split="train")
    loader = DataLoader(rows, batch_size=4, shuffle=True, collate_fn=lambda b: collate(b, tok))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6)
    model, opt, loader = acc.prepare(model, opt, loader)
    tuner = PreferenceTuner(model, beta=0.1)
    model.train()
    for step, batch in enumerate(loader):
        loss = tuner.loss(batch)
        acc.backward(loss)
        acc.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        if step % 20 == 0:
            acc.print(step, round(loss.item(), 4))
    acc.unwrap_model(model).save_pretrained("runs/pref/adapter")


if __name__ == "__main__":
    main()
