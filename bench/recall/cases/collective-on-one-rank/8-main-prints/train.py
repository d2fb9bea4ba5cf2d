import json
import os

import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from prepare import encode_rows
from scoring import evaluate

BASE, OUT = "Qwen/Qwen2.5-7B-Instruct", "out/claims"


def main():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    tok = AutoTokenizer.from_pretrained(BASE)
    if accelerator.is_main_process and not os.path.exists("cache/train.jsonl"):
        os.makedirs("cache", exist_ok=True)
        encode_rows("claims_train.jsonl", "cache/train.jsonl", tok)
        encode_rows("claims_valid.jsonl", "cache/valid.jsonl", tok)
    accelerator.wait_for_everyone()

    data = load_dataset("json", data_files={s: f"cache/{s}.jsonl" for s in ("train", "valid")})
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train_dl = DataLoader(data["train"], batch_size=2, shuffle=True, collate_fn=collate)
    valid_dl = DataLoader(data["valid"], batch_size=4, collate_fn=collate)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model, opt, train_dl, valid_dl = accelerator.prepare(model, opt, train_dl, valid_dl)

    for epoch in range(2):
        model.train()
        for batch in train_dl:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                opt.step()
                opt.zero_grad()
        score = evaluate(model, valid_dl, accelerator)
        if accelerator.is_main_process:
            print(json.dumps({"epoch": epoch, **score}), flush=True)

    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        OUT, is_main_process=accelerator.is_main_process, save_function=accelerator.save, state_dict=state
    )
    if accelerator.is_main_process:
        tok.save_pretrained(OUT)
    accelerator.end_training()


if __name__ == "__main__":
    main()
