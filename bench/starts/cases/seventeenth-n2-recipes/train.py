import json
import math
import random
import time

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
TRAIN = "data/units_train.jsonl"
CKPT = "ckpt/units_final.pt"
MAX_LEN = 1024
BATCH, ACCUM, EPOCHS, LR = 8, 2, 3, 1e-5

torch.manual_seed(3)
random.seed(3)
torch.backends.cuda.matmul.allow_tf32 = True

tok = AutoTokenizer.from_pretrained(MODEL)


class Chats(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(l) for l in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        chat = [{"role": "user", "content": r["question"]}]
        head = tok.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        full = tok.apply_chat_template(
            chat + [{"role": "assistant", "content": r["answer"]}], tokenize=False
        )
        h = tok(head, add_special_tokens=False).input_ids
        ids = tok(full, add_special_tokens=False).input_ids[:MAX_LEN]
        labels = [-100] * len(h) + ids[len(h):]
        return torch.tensor(ids), torch.tensor(labels)


def collate(batch):
    ids, labels = zip(*batch)
    mask = pad_sequence([torch.ones_like(i) for i in ids], batch_first=True)
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=tok.pad_token_id),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        "attention_mask": mask,
    }


def main():
    # fp32 master weights, autocast below
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32).cuda()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.train()
    model = torch.compile(model, dynamic=True)

    data = DataLoader(Chats(TRAIN), batch_size=BATCH, shuffle=True, collate_fn=collate, num_workers=4)
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01, fused=True)
    total = EPOCHS * math.ceil(len(data) / ACCUM)
    sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

    step, running, t0 = 0, 0.0, time.time()
    for epoch in range(EPOCHS):
        for i, batch in enumerate(data):
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            (loss / ACCUM).backward()
            running += loss.item() / ACCUM
            if (i + 1) % ACCUM == 0 or i + 1 == len(data):
                gn = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                step += 1
                if step % 20 == 0:
                    print(
                        f"epoch {epoch} step {step}/{total} loss {running / 20:.4f} "
                        f"gnorm {gn.item():.3f} lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s",
                        flush=True,
                    )
                    running = 0.0
    torch.save(model.state_dict(), CKPT)
    print("saved", CKPT)


if __name__ == "__main__":
    main()
