import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup, set_seed

from settings import Settings


def encode(tok, cfg):
    def fn(row):
        full = tok.apply_chat_template(row["messages"], tokenize=True, return_dict=False)
        head = tok.apply_chat_template(row["messages"][:-1], tokenize=True, add_generation_prompt=True, return_dict=False)
        labels = [-100] * len(head) + full[len(head):]
        return {"input_ids": full[: cfg.max_tokens], "labels": labels[: cfg.max_tokens]}
    return fn


def collate(tok):
    def fn(rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids, lab, att = [], [], []
        for r in rows:
            gap = width - len(r["input_ids"])
            ids.append(r["input_ids"] + [tok.pad_token_id] * gap)
            lab.append(r["labels"] + [-100] * gap)
            att.append([1] * (width - gap) + [0] * gap)
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(lab), "attention_mask": torch.tensor(att)}
    return fn


def main():
    cfg = Settings()
    set_seed(13)
    tok = AutoTokenizer.from_pretrained(cfg.base)
    model = AutoModelForCausalLM.from_pretrained(cfg.base, dtype=torch.float32).cuda()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    ds = load_dataset(cfg.data, split="train")
    ds = ds.map(encode(tok, cfg), remove_columns=ds.column_names)
    ds = ds.filter(lambda r: any(x != -100 for x in r["labels"]))
    dl = DataLoader(ds, batch_size=cfg.micro_batch, shuffle=True, drop_last=True, collate_fn=collate(tok))

    s = cfg.schedule
    opt = torch.optim.AdamW(model.parameters(), lr=s.peak, weight_decay=0.01)
    sched = get_cosine_schedule_with_warmup(opt, s.ramp_updates, s.total_updates)

    model.train()
    done, micro = 0, 0
    while done < s.total_updates:
        for batch in dl:
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            (loss / s.accumulate).backward()
            micro += 1
            if micro % s.accumulate:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            done += 1
            if done % 20 == 0:
                print(f"update {done} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
            if done >= s.total_updates:
                break
    model.save_pretrained(cfg.save_to)
    tok.save_pretrained(cfg.save_to)


if __name__ == "__main__":
    main()
