import json
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MAX_LEN = 4096
BATCH = 2
ACCUM = 8
EPOCHS = 2
LR = 1e-4


class Contracts(Dataset):
    """rows are {"prompt": str, "answer": str}; prompts are whole contracts."""

    def __init__(self, path, tok):
        self.rows = []
        for line in open(path):
            r = json.loads(line)
            chat = [{"role": "user", "content": r["prompt"]}]
            p = tok.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            a = tok(r["answer"] + "<|eot_id|>", add_special_tokens=False).input_ids
            p = p[: MAX_LEN - len(a)]
            self.rows.append((p + a, [-100] * len(p) + a))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch, pad):
    n = max(len(ids) for ids, _ in batch)
    return {
        "input_ids": torch.tensor([ids + [pad] * (n - len(ids)) for ids, _ in batch]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (n - len(ids)) for ids, _ in batch]),
        "labels": torch.tensor([lab + [-100] * (n - len(lab)) for _, lab in batch]),
    }


def evaluate(model, loader, accelerator):
    model.eval()
    total, count = 0.0, 0
    for batch in loader:
        outputs = model(**batch)
        n = (batch["labels"] != -100).sum().item()
        total += outputs.loss.item() * n
        count += n
    model.train()
    return total / count


def main():
    set_seed(11)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACCUM)
    tok = AutoTokenizer.from_pretrained(MODEL)
    pad = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")

    model = AutoModelForCausalLM.from_pretrained(
        MODEL, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )

    train = DataLoader(Contracts("train.jsonl", tok), batch_size=BATCH, shuffle=True,
                       collate_fn=lambda b: collate(b, pad), drop_last=True)
    val = DataLoader(Contracts("val.jsonl", tok), batch_size=BATCH,
                     collate_fn=lambda b: collate(b, pad))

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
    steps = math.ceil(len(train) / ACCUM) * EPOCHS
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.05 * steps), steps)
    model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)

    step, t0 = 0, time.time()
    model.train()
    for epoch in range(EPOCHS):
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if step % 5 == 0:
                    peak = torch.cuda.max_memory_allocated() / 2**30
                    print(f"epoch {epoch} step {step}/{steps} loss {loss.item():.4f} "
                          f"lr {optimizer.param_groups[0]['lr']:.2e} peak {peak:.1f} GiB "
                          f"{time.time() - t0:.0f}s", flush=True)
        val_loss = evaluate(model, val, accelerator)
        print(f"epoch {epoch} val_loss {val_loss:.4f}", flush=True)
        accelerator.unwrap_model(model).save_pretrained(f"ckpt/epoch{epoch}")
        tok.save_pretrained(f"ckpt/epoch{epoch}")


if __name__ == "__main__":
    main()
