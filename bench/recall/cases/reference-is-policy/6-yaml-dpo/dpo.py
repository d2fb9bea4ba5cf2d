import sys

import torch
import torch.nn.functional as F
import yaml
from datasets import load_dataset
from torch.utils.data import DataLoader

from loading import get_model, get_tokenizer


def logps(net, b):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = net(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
    y = b["labels"][:, 1:]
    keep = y != -100
    lp = logits[:, :-1].float().log_softmax(-1).gather(-1, y.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
    return (lp * keep).sum(-1).chunk(2)


def collator(tok, max_len):
    def seq(prompt, answer):
        head = tok.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return (a + b)[:max_len], ([-100] * len(a) + b)[:max_len]

    def fn(rows):
        seqs = [seq(r["prompt"], r["chosen"]) for r in rows] + [seq(r["prompt"], r["rejected"]) for r in rows]
        w = max(len(s) for s, _ in seqs)
        return {
            "input_ids": torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs]).cuda(),
            "attention_mask": torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs]).cuda(),
            "labels": torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs]).cuda(),
        }

    return fn


def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    tok = get_tokenizer(cfg["sft"])
    policy = get_model(cfg["sft"])
    reference = get_model(cfg["sft"])
    policy.train()
    ds = load_dataset("json", data_files=cfg["pairs"], split="train")
    loader = DataLoader(ds, batch_size=cfg["batch_size"], shuffle=True, collate_fn=collator(tok, cfg["max_len"]))
    opt = torch.optim.AdamW(policy.parameters(), lr=cfg["lr"])
    for step, batch in enumerate(loader):
        with torch.no_grad():
            rw, rl = logps(reference, batch)
        pw, pl = logps(policy, batch)
        loss = -F.logsigmoid(cfg["beta"] * ((pw - rw) - (pl - rl))).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(step, round(loss.item(), 4), flush=True)
    policy.save_pretrained(cfg["out"])
    tok.save_pretrained(cfg["out"])


if __name__ == "__main__":
    main(sys.argv[1])
