import argparse
import logging

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

log = get_logger(__name__)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--out", default="out")
    return p.parse_args()


def main():
    args = parse()
    acc = Accelerator(mixed_precision="bf16")
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    set_seed(11)

    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )

    data = load_from_disk(args.data)  # input_ids, attention_mask, labels
    loader = DataLoader(
        data, batch_size=args.batch_size, shuffle=True, drop_last=True, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )
    opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=args.lr, weight_decay=0.0)
    model, opt, loader = acc.prepare(model, opt, loader)

    total = args.epochs * len(loader)
    sched = get_scheduler("cosine", opt, num_warmup_steps=args.warmup, num_training_steps=total)
    sched = acc.prepare(sched)
    log.info(f"rows {len(data)}  processes {acc.num_processes}  steps {total}")

    step = 0
    model.train()
    for epoch in range(args.epochs):
        for batch in loader:
            loss = model(**batch).loss
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            step += 1
            if step % 20 == 0:
                mean = acc.reduce(loss.detach(), reduction="mean").item()
                log.info(f"epoch {epoch} step {step}/{total} loss {mean:.4f} lr {sched.get_last_lr()[0]:.3e}")
    acc.wait_for_everyone()
    acc.unwrap_model(model).save_pretrained(args.out, is_main_process=acc.is_main_process, save_function=acc.save)


if __name__ == "__main__":
    main()
