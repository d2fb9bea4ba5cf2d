import argparse, json, os, random, time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup
from peft import LoraConfig, TaskType, get_peft_model


class SQLData(Dataset):
    def __init__(self, path, tok, max_len):
        self.items = []
        for line in open(path):
            r = json.loads(line)
            msgs = [{"role": "user", "content": r["schema"] + "\n\n" + r["question"]}]
            p = tok.apply_chat_template(msgs, tokenize=True, add_generation_prompt=True)
            a = tok.encode(r["sql"], add_special_tokens=False) + [tok.eos_token_id]
            if len(p) + len(a) > max_len:
                continue
            self.items.append((p, a))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        p, a = self.items[i]
        return p + a, [-100] * len(p) + a


def collate(batch, pad_id):
    n = max(len(x) for x, _ in batch)
    ids = torch.full((len(batch), n), pad_id)
    lab = torch.full((len(batch), n), -100)
    att = torch.zeros((len(batch), n), dtype=torch.long)
    for i, (x, y) in enumerate(batch):
        ids[i, : len(x)] = torch.tensor(x)
        lab[i, : len(y)] = torch.tensor(y)
        att[i, : len(x)] = 1
    return {"input_ids": ids, "labels": lab, "attention_mask": att}


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    s = n = 0
    for b in loader:
        b = {k: v.cuda() for k, v in b.items()}
        cnt = (b["labels"][:, 1:] != -100).sum().item()
        s += model(**b).loss.item() * cnt
        n += cnt
    model.train()
    return s / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="mistralai/Mistral-7B-Instruct-v0.3")
    ap.add_argument("--train", default="data/sql_train.jsonl")
    ap.add_argument("--val", default="data/sql_val.jsonl")
    ap.add_argument("--out", default="runs/sql-lora")
    ap.add_argument("--lr", type=float, default=2e-4)
    ap.add_argument("--bs", type=int, default=4)
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--max_len", type=int, default=1024)
    args = ap.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    os.makedirs(args.out, exist_ok=True)

    tok = AutoTokenizer.from_pretrained(args.model)
    pad_id = tok.unk_token_id

    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16).cuda()
    model.config.use_cache = False

    train = SQLData(args.train, tok, args.max_len)
    val = SQLData(args.val, tok, args.max_len)
    dl = DataLoader(train, args.bs, shuffle=True, drop_last=True, collate_fn=lambda b: collate(b, pad_id))
    vl = DataLoader(val, args.bs, collate_fn=lambda b: collate(b, pad_id))

    total = args.epochs * (len(dl) // args.accum)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)

    model = get_peft_model(
        model,
        LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=16,
            lora_alpha=32,
            lora_dropout=0.05,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"],
        ),
    )
    model.print_trainable_parameters()
    model.train()

    step = 0
    running = 0.0
    t0 = time.time()
    for ep in range(args.epochs):
        for i, b in enumerate(dl):
            b = {k: v.cuda(non_blocking=True) for k, v in b.items()}
            loss = model(**b).loss / args.accum
            loss.backward()
            running += loss.item()
            if (i + 1) % args.accum == 0:
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                step += 1
                if step % 10 == 0:
                    print(
                        f"ep {ep} step {step}/{total} loss {running / 10:.4f} "
                        f"lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s",
                        flush=True,
                    )
                    running = 0.0
        print(f"== epoch {ep} val loss {evaluate(model, vl):.4f}", flush=True)
        model.save_pretrained(f"{args.out}/ep{ep}")


if __name__ == "__main__":
    main()
