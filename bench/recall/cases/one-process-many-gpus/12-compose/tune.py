import argparse
import tomllib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", required=True)
    with open(ap.parse_args().config, "rb") as fh:
        cfg = tomllib.load(fh)
    set_seed(13)
    accelerator = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(cfg["base"])
    rows = load_dataset("openai/gsm8k", "main", split="train")
    rows = rows.map(encode, fn_kwargs={"tok": tok}, remove_columns=rows.column_names)
    loader = DataLoader(rows, batch_size=cfg["batch_size"], shuffle=True,
                        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100))
    model = AutoModelForCausalLM.from_pretrained(cfg["base"], dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=cfg["rank"], lora_alpha=2 * cfg["rank"],
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=cfg["lr"])
    model, opt, loader = accelerator.prepare(model, opt, loader)
    total = len(loader) * cfg["epochs"]
    sched = get_scheduler("cosine", opt, num_warmup_steps=int(0.03 * total), num_training_steps=total)
    model.train()
    for epoch in range(cfg["epochs"]):
        for step, batch in enumerate(loader):
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            if step % 25 == 0:
                accelerator.print(f"{epoch}/{step} {loss.item():.4f}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(cfg["out"])
        tok.save_pretrained(cfg["out"])


if __name__ == "__main__":
    main()
