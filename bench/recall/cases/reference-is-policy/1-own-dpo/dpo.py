import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

BASE, BETA, ACCUM = "Qwen/Qwen2.5-0.5B-Instruct", 0.1, 8

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).cuda()
ref_model = model
ref_model.eval()


def build(prompt, answer, max_len=1024):
    head = tok.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return (a + b)[:max_len], ([-100] * len(a) + b)[:max_len]


def collate(rows):
    seqs = [build(r["chosen"][:-1], r["chosen"][-1]["content"]) for r in rows]
    seqs += [build(r["rejected"][:-1], r["rejected"][-1]["content"]) for r in rows]
    w = max(len(s) for s, _ in seqs)
    return {
        "input_ids": torch.tensor([s + [tok.pad_token_id] * (w - len(s)) for s, _ in seqs]),
        "attention_mask": torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s, _ in seqs]),
        "labels": torch.tensor([t + [-100] * (w - len(t)) for _, t in seqs]),
    }


def logps(net, batch):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = net(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    keep = labels != -100
    lp = logits[:, :-1].float().log_softmax(-1).gather(-1, labels.masked_fill(~keep, 0).unsqueeze(-1)).squeeze(-1)
    return (lp * keep).sum(-1).chunk(2)


ds = load_dataset("trl-lib/ultrafeedback_binarized", split="train").select(range(8000))
loader = DataLoader(ds, batch_size=2, shuffle=True, collate_fn=collate)
opt = torch.optim.AdamW(model.parameters(), lr=5e-7)
sched = get_linear_schedule_with_warmup(opt, 30, len(loader) // ACCUM)

for step, batch in enumerate(loader):
    batch = {k: v.cuda() for k, v in batch.items()}
    with torch.no_grad():
        ref_w, ref_l = logps(ref_model, batch)
    pi_w, pi_l = logps(model, batch)
    margin = BETA * ((pi_w - ref_w) - (pi_l - ref_l))
    loss = -F.logsigmoid(margin).mean()
    (loss / ACCUM).backward()
    if (step + 1) % ACCUM == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
    if step % 100 == 0:
        print(step, loss.item(), margin.mean().item())

model.save_pretrained("out/dpo")
tok.save_pretrained("out/dpo")
