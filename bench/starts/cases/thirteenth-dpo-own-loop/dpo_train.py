# preference tuning on top of our SFT adapter, one node, accelerate
import json
import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from peft import PeftModel
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "mistralai/Mistral-7B-v0.3"
SFT_ADAPTER = "/ckpt/underwriting/sft-adapter"
PAIRS = "/data/underwriting/pairs_train.jsonl"
OUT = "/ckpt/underwriting/dpo-adapter"
BETA = 0.1
LR = 5e-6
EPOCHS = 1
BS = 2
ACCUM = 8
MAXLEN = 1536


class Pairs(Dataset):
    def __init__(self, path, tok):
        self.rows = [json.loads(l) for l in open(path)]
        self.tok = tok

    def __len__(self):
        return len(self.rows)

    def one(self, prompt, answer):
        p = self.tok(f"[INST] {prompt}[/INST]", add_special_tokens=True)["input_ids"]
        a = self.tok(" " + answer, add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]
        ids = (p + a)[:MAXLEN]
        labels = ([-100] * len(p) + a)[:MAXLEN]
        return ids, labels

    def __getitem__(self, i):
        r = self.rows[i]
        return self.one(r["prompt"], r["chosen"]), self.one(r["prompt"], r["rejected"])


def collate(batch, pad):
    seqs = [b[0] for b in batch] + [b[1] for b in batch]
    n = max(len(s[0]) for s in seqs)
    ids = torch.full((len(seqs), n), pad)
    att = torch.zeros((len(seqs), n), dtype=torch.long)
    lab = torch.full((len(seqs), n), -100)
    for k, (i, l) in enumerate(seqs):
        ids[k, : len(i)] = torch.tensor(i)
        att[k, : len(i)] = 1
        lab[k, : len(l)] = torch.tensor(l)
    return {"input_ids": ids, "attention_mask": att, "labels": lab}


def logps(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1].float()
    labels = batch["labels"][:, 1:]
    keep = labels != -100
    lp = torch.gather(logits.log_softmax(-1), 2, labels.masked_fill(~keep, 0).unsqueeze(2)).squeeze(2)
    s = (lp * keep).sum(-1)
    return s.chunk(2)


def main():
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACCUM)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = tok.unk_token
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, attn_implementation="sdpa")
    base.config.use_cache = False
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.enable_input_require_grads()
    model = PeftModel.from_pretrained(base, SFT_ADAPTER, is_trainable=True, autocast_adapter_dtype=True)
    model.print_trainable_parameters()

    ds = Pairs(PAIRS, tok)
    dl = DataLoader(ds, batch_size=BS, shuffle=True, collate_fn=lambda b: collate(b, tok.pad_token_id), num_workers=2)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
    model, opt, dl = acc.prepare(model, opt, dl)
    total = math.ceil(len(dl) / ACCUM) * EPOCHS
    sched = get_cosine_schedule_with_warmup(opt, int(0.1 * total), total)
    acc.print(f"pairs {len(ds)}  optimizer steps {total}")

    step, hist = 0, []
    model.train()
    for epoch in range(EPOCHS):
        for batch in dl:
            with acc.accumulate(model):
                with torch.no_grad(), acc.unwrap_model(model).disable_adapter():
                    ref_c, ref_r = logps(model, batch)
                pol_c, pol_r = logps(model, batch)
                rc, rr = BETA * (pol_c - ref_c), BETA * (pol_r - ref_r)
                loss = -F.logsigmoid(rc - rr).mean()
                acc.backward(loss)
                if acc.sync_gradients:
                    gn = acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
                hist.append([loss.item(), rc.mean().item(), rr.mean().item(), (rc > rr).float().mean().item()])
            if acc.sync_gradients:
                sched.step()
                step += 1
                l, c, r, a = (sum(x) / len(x) for x in zip(*hist))
                hist.clear()
                acc.print(
                    f"step {step:4d}/{total} loss {l:.4f} rewards/chosen {c:+.3f} rewards/rejected {r:+.3f} "
                    f"rewards/margins {c - r:+.3f} rewards/accuracies {a:.3f} grad_norm {gn.item():.2f} lr {sched.get_last_lr()[0]:.2e}"
                )
    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained(OUT, safe_serialization=True)
    tok.save_pretrained(OUT)


if __name__ == "__main__":
    main()
