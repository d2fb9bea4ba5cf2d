import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MAX_LEN = 4096
BS = 4
ACCUM = 4
EPOCHS = 2
EVAL_EVERY = 100


def encode(row, tok):
    prompt = tok.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, return_dict=False)
    ids = tok.apply_chat_template(row["messages"], return_dict=False)[:MAX_LEN]
    labels = ([-100] * len(prompt) + ids[len(prompt):])[: len(ids)]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def evaluate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        out = model(**batch)
        losses.append(accelerator.gather(out.loss.detach().repeat(BS)).cpu())
    model.train()
    loss = torch.cat(losses).mean().item()
    return loss, math.exp(loss)


def main():
    set_seed(11)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACCUM)
    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = "<|finetune_right_pad_id|>"

    raw = load_dataset("json", data_files={"train": "data/train.jsonl", "val": "data/val.jsonl"})
    ds = raw.map(lambda r: encode(r, tok), remove_columns=raw["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100, pad_to_multiple_of=8)
    train_dl = DataLoader(ds["train"], batch_size=BS, shuffle=True, collate_fn=collate, drop_last=True)
    val_dl = DataLoader(ds["val"], batch_size=BS, shuffle=False, collate_fn=collate)

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))

    optim = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    total = len(train_dl) // ACCUM * EPOCHS
    sched = get_cosine_schedule_with_warmup(optim, int(0.03 * total), total)
    model, optim, train_dl, val_dl, sched = accelerator.prepare(model, optim, train_dl, val_dl, sched)

    step = 0
    for epoch in range(EPOCHS):
        model.train()
        for batch in train_dl:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optim.step()
                sched.step()
                optim.zero_grad()
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step % 5 == 0:
                mem = torch.cuda.max_memory_allocated() / 2**30
                accelerator.print(f"epoch {epoch} step {step}/{total} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e} peak {mem:.1f}GiB")
            if step % EVAL_EVERY == 0:
                val_loss, ppl = evaluate(model, val_dl, accelerator)
                accelerator.print(f"  val_loss {val_loss:.4f} ppl {ppl:.2f}")
                accelerator.unwrap_model(model).save_pretrained(os.path.join("ckpt", f"step{step}"))
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("ckpt/final")


if __name__ == "__main__":
    main()
