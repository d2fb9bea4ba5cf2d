import json
import random
from pathlib import Path

import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "Qwen/Qwen2.5-0.5B-Instruct"
BETA = 0.1
tok = AutoTokenizer.from_pretrained(NAME)
policy = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.float32).cuda()
reference = policy
pairs = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]


def logp(model, prompt, answer):
    head = tok.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
    )
    n = len(tok(head, add_special_tokens=False).input_ids)
    ids = tok(
        head + answer + "<|im_end|>", add_special_tokens=False, return_tensors="pt"
    ).input_ids.cuda()
    logits = model(ids).logits[:, :-1].log_softmax(-1)
    token = logits.gather(2, ids[:, 1:, None]).squeeze(2)
    return token[:, n - 1 :].sum()


optim = torch.optim.AdamW(policy.parameters(), lr=1e-6)
for step in range(2000):
    total = 0.0
    optim.zero_grad()
    for row in random.sample(pairs, 8):
        pi_w = logp(policy, row["prompt"], row["chosen"])
        pi_l = logp(policy, row["prompt"], row["rejected"])
        with torch.no_grad():
            ref_w = logp(reference, row["prompt"], row["chosen"])
            ref_l = logp(reference, row["prompt"], row["rejected"])
        loss = -logsigmoid(BETA * ((pi_w - ref_w) - (pi_l - ref_l))) / 8
        loss.backward()
        total += loss.item()
    optim.step()
    print(f"step {step} loss {total:.4f}", flush=True)

policy.save_pretrained("qwen-dpo")
tok.save_pretrained("qwen-dpo")
