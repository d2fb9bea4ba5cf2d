"""DPO without TRL: policy and frozen reference, Accelerate, bf16."""
import argparse
import json
import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
parser.add_argument("--pairs", default="pairs.jsonl")
parser.add_argument("--out", default="dpo-out")
parser.add_argument("--lr", type=float, default=8e-7)
parser.add_argument("--beta", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--max-length", type=int, default=1536)
args = parser.parse_args()

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=args.accumulate)
tokenizer = AutoTokenizer.from_pretrained(args.model)
policy = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float32)
policy.gradient_checkpointing_enable()
reference = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
reference.eval().requires_grad_(False)


def encode(prompt, answer):
    head = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=True
    )
    tail = tokenizer(answer + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (head + tail)[: args.max_length]
    mask = ([0] * len(head) + [1] * len(tail))[: args.max_length]
    return ids, mask


def collate(rows):
    sides = [encode(r["prompt"], r["chosen"]) for r in rows] + [encode(r["prompt"], r["rejected"]) for r in rows]
    longest = max(len(ids) for ids, _ in sides)
    batch = {"input_ids": [], "attention_mask": [], "answer_mask": []}
    for ids, mask in sides:
        fill = longest - len(ids)
        batch["input_ids"].append(ids + [tokenizer.pad_token_id] * fill)
        batch["attention_mask"].append([1] * len(ids) + [0] * fill)
        batch["answer_mask"].append(mask + [0] * fill)
    return {name: torch.tensor(value) for name, value in batch.items()}


def sequence_logps(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    logps = F.log_softmax(logits.float(), dim=-1)
    picked = torch.gather(logps, 2, batch["input_ids"].unsqueeze(2)).squeeze(2)
    return (picked * batch["answer_mask"]).sum(-1)


rows = [json.loads(line) for line in open(args.pairs)]
loader = DataLoader(rows, batch_size=args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=0.0)
total = args.epochs * math.ceil(len(loader) / args.accumulate)
schedule = get_cosine_schedule_with_warmup(
    optimizer, int(0.1 * total) * accelerator.num_processes, total * accelerator.num_processes
)
policy, optimizer, loader, schedule = accelerator.prepare(policy, optimizer, loader, schedule)
reference.to(accelerator.device)

step = 0
policy.train()
for epoch in range(args.epochs):
    for batch in loader:
        with accelerator.accumulate(policy):
            with torch.no_grad():
                ref_chosen, ref_rejected = sequence_logps(reference, batch).chunk(2)
            chosen, rejected = sequence_logps(policy, batch).chunk(2)
            margin = args.beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
            loss = -F.logsigmoid(margin).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            if step % 10 == 0:
                accelerator.print(
                    f"step {step} loss {loss.item():.4f} acc {(margin > 0).float().mean().item():.2f} "
                    f"margin {margin.mean().item():.3f} logp_chosen {chosen.mean().item():.1f} "
                    f"logp_rejected {rejected.mean().item():.1f} lr {schedule.get_last_lr()[0]:.2e}"
                )

accelerator.wait_for_everyone()
if accelerator.is_main_process:
    accelerator.unwrap_model(policy).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
