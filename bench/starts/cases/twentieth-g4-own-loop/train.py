import math
import time
from dataclasses import dataclass

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


@dataclass
class Cfg:
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    data: str = "recipes.jsonl"
    max_len: int = 768
    batch_size: int = 16
    epochs: int = 2
    lr: float = 2e-5
    warmup: int = 50
    out: str = "ckpt/final.pt"


def encode(row, tok, max_len):
    msgs = [{"role": "user", "content": row["question"]}]
    prompt = tok.apply_chat_template(msgs, tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": (p + a)[:max_len], "labels": ([-100] * len(p) + a)[:max_len]}


def collate(batch, pad_id):
    n = max(len(b["input_ids"]) for b in batch)
    ids = torch.full((len(batch), n), pad_id)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros((len(batch), n), dtype=torch.long)
    for i, b in enumerate(batch):
        m = len(b["input_ids"])
        ids[i, :m] = torch.tensor(b["input_ids"])
        lab[i, :m] = torch.tensor(b["labels"])
        att[i, :m] = 1
    return {"input_ids": ids, "labels": lab, "attention_mask": att}


def main(cfg=Cfg()):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model, torch_dtype=torch.float32).cuda()
    model.config.use_cache = False
    model = torch.compile(model, dynamic=True)

    ds = load_dataset("json", data_files=cfg.data, split="train")
    ds = ds.map(lambda r: encode(r, tok, cfg.max_len), remove_columns=ds.column_names)
    dl = DataLoader(ds, batch_size=cfg.batch_size, shuffle=True, drop_last=True, collate_fn=lambda b: collate(b, tok.pad_token_id))
    total = cfg.epochs * len(dl)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01, betas=(0.9, 0.95))
    sched = get_cosine_schedule_with_warmup(opt, cfg.warmup, total)

    model.train()
    step, t0 = 0, time.time()
    for epoch in range(cfg.epochs):
        for batch in dl:
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} ppl {math.exp(loss.item()):.2f} gnorm {gn.item():.2f} lr {sched.get_last_lr()[0]:.2e} {time.time()-t0:.0f}s", flush=True)
    torch.save(model.state_dict(), cfg.out)
    tok.save_pretrained("ckpt")
    print("saved", cfg.out)


if __name__ == "__main__":
    main()
