import json
import math
import os
import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
EPOCHS, BS, LR, MAXLEN = 3, 8, 1e-5, 1024

torch.manual_seed(7)
random.seed(7)
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).cuda()
model.config.use_cache = False
model = torch.compile(model)


def encode(messages):
    prompt = tok.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
    prompt_ids = tok(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tok(messages[-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (prompt_ids + answer_ids)[:MAXLEN]
    labels = ([-100] * len(prompt_ids) + answer_ids)[:MAXLEN]
    return torch.tensor(ids), torch.tensor(labels)


def collate(batch):
    ids = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=tok.pad_token_id)
    labels = pad_sequence([b[1] for b in batch], batch_first=True, padding_value=-100)
    lengths = torch.tensor([len(b[0]) for b in batch])
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


rows = [encode(json.loads(line)["messages"]) for line in open("chats.jsonl")]
loader = DataLoader(rows, batch_size=BS, shuffle=True, collate_fn=collate)
opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
steps = EPOCHS * len(loader)
sched = get_cosine_schedule_with_warmup(opt, int(0.05 * steps), steps)

model.train()
step = 0
for epoch in range(EPOCHS):
    for batch in loader:
        batch = {k: v.cuda() for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0:
            print(f"epoch {epoch} step {step}/{steps} loss {loss.item():.4f} ppl {math.exp(loss.item()):.2f}", flush=True)

os.makedirs("out", exist_ok=True)
torch.save(model.state_dict(), "out/model.pt")
tok.save_pretrained("out")
print("saved to out/model.pt")
