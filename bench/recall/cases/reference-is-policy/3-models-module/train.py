import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader

from models import load_pair

BETA = 0.1


def sequence_logps(net, ids, mask, labels):
    logits = net(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
    y = labels[:, 1:]
    keep = y != -100
    lp = logits.log_softmax(-1).gather(-1, y.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
    return (lp * keep).sum(-1)


def side(rows, key, tok, max_len=1024):
    seqs = []
    for r in rows:
        head = tok.apply_chat_template(
            [{"role": "user", "content": r["prompt"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(r[key] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        seqs.append(((a + b)[:max_len], ([-100] * len(a) + b)[:max_len]))
    w = max(len(s) for s, _ in seqs)
    ids = torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs]).cuda()
    mask = torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs]).cuda()
    labels = torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs]).cuda()
    return ids, mask, labels


def main():
    policy, reference, tok = load_pair("Qwen/Qwen2.5-3B-Instruct")
    ds = load_dataset("json", data_files="prefs.jsonl", split="train")
    loader = DataLoader(ds, batch_size=2, shuffle=True, collate_fn=list)
    params = [p for p in policy.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=5e-6)
    policy.train()
    for step, rows in enumerate(loader):
        good, bad = side(rows, "chosen", tok), side(rows, "rejected", tok)
        with torch.no_grad():
            ref_margin = sequence_logps(reference, *good) - sequence_logps(reference, *bad)
        margin = sequence_logps(policy, *good) - sequence_logps(policy, *bad)
        loss = -F.logsigmoid(BETA * (margin - ref_margin)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))
    policy.save_pretrained("out/dpo-lora")
    tok.save_pretrained("out/dpo-lora")


if __name__ == "__main__":
    main()
