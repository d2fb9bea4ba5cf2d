import argparse

import torch
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from evaluation import evaluate


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--base", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--train", default="train.jsonl")
    p.add_argument("--valid", default="valid.jsonl")
    p.add_argument("--eval_every", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-4)
    return p.parse_args()


def main():
    args = parse()
    accelerator = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(args.base)

    def encode(row):
        head = tok.apply_chat_template(
            [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
        )
        a = tok(head, add_special_tokens=False)["input_ids"]
        b = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}

    with accelerator.main_process_first():
        raw = load_dataset("json", data_files={"train": args.train, "valid": args.valid})
        data = raw.map(encode, remove_columns=raw["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train_dl = DataLoader(data["train"], batch_size=4, shuffle=True, collate_fn=collate)
    valid_dl = DataLoader(data["valid"], batch_size=8, collate_fn=collate)

    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    model, opt, train_dl, valid_dl = accelerator.prepare(model, opt, train_dl, valid_dl)

    step = 0
    model.train()
    for epoch in range(2):
        for batch in train_dl:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            step += 1
            if accelerator.is_main_process and step % args.eval_every == 0:
                print(step, loss.item(), evaluate(model, valid_dl, accelerator))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("out/adapter")
        tok.save_pretrained("out/adapter")


if __name__ == "__main__":
    main()
