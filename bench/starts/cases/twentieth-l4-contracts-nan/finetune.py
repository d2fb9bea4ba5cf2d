import json
import random

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "meta-llama/Llama-3.2-1B-Instruct"
MAX_LEN = 1024
ACCUM = 16
EPOCHS = 3
LR = 1e-5

tok = AutoTokenizer.from_pretrained(MODEL)


class Contracts(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(line) for line in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        prompt = tok.apply_chat_template(
            [{"role": "user", "content": f"{r['clause']}\n\nQuestion: {r['question']}"}],
            add_generation_prompt=True,
            tokenize=False,
        )
        p = tok(prompt, add_special_tokens=False)["input_ids"]
        a = tok(r["answer"] + "<|eot_id|>", add_special_tokens=False)["input_ids"]
        ids = torch.tensor((p + a)[:MAX_LEN])
        labels = torch.tensor(([-100] * len(p) + a)[:MAX_LEN])
        return ids, labels


def main():
    random.seed(0)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32).cuda()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    loader = DataLoader(Contracts("contracts_qa.jsonl"), batch_size=1, shuffle=True)
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    total = EPOCHS * len(loader) // ACCUM
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=LR, total_steps=total + 1, pct_start=0.05)

    model.train()
    step, acc_loss = 0, 0.0
    for epoch in range(EPOCHS):
        for i, (ids, labels) in enumerate(loader, 1):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(input_ids=ids.cuda(), labels=labels.cuda()).loss / ACCUM
            loss.backward()
            acc_loss += loss.item()
            if i % ACCUM == 0:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
                step += 1
                print(f"[{step:4d}/{total}] epoch {epoch} loss {acc_loss:.4f} grad_norm {norm:.3f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
                acc_loss = 0.0
        model.save_pretrained(f"ckpt-epoch{epoch}")


if __name__ == "__main__":
    main()
