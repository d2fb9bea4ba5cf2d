import argparse

import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, get_cosine_schedule_with_warmup

from modeling import load_for_training


def encode(row, tok):
    prompt = tok.apply_chat_template([{"role": "user", "content": row["q"]}], tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(row["a"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    ids = (p + a)[:1536]
    labels = ([-100] * len(p) + a)[:1536]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--init", default="runs/qa-stage1")
    ap.add_argument("--out", default="runs/qa-stage2")
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()

    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=8)
    model, tok = load_for_training(args.init)
    ds = load_dataset("json", data_files="data/qa_stage2.jsonl", split="train")
    ds = ds.map(lambda r: encode(r, tok), remove_columns=ds.column_names)
    loader = DataLoader(ds, batch_size=2, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100))

    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    sched = get_cosine_schedule_with_warmup(opt, 30, args.epochs * len(loader) // 8)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

    model.train()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            if step % 50 == 0:
                acc.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    acc.wait_for_everyone()
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained(args.out)
        tok.save_pretrained(args.out)


if __name__ == "__main__":
    main()
