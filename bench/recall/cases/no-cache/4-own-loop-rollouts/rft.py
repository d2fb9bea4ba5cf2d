"""Rejection-sampling fine-tuning: sample, keep correct answers, one update, repeat."""
import json
import random

import torch
from peft import LoraConfig, get_peft_model
from reward import is_correct
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

NAME = "Qwen/Qwen2.5-1.5B-Instruct"
STEPS, PROMPTS, SAMPLES = 300, 8, 4

random.seed(0)
torch.manual_seed(0)
tok = AutoTokenizer.from_pretrained(NAME, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16).cuda()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"))
model.train()

params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=1e-4)
sched = get_cosine_schedule_with_warmup(opt, 20, STEPS)
problems = [json.loads(line) for line in open("data/train.jsonl")]


def sample(batch):
    enc = tok.apply_chat_template(
        [[{"role": "user", "content": b["problem"]}] for b in batch],
        add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True,
    ).to("cuda")
    with torch.no_grad():
        seq = model.generate(
            **enc, max_new_tokens=400, do_sample=True, temperature=0.9, top_p=1.0, top_k=0,
            num_return_sequences=SAMPLES, pad_token_id=tok.pad_token_id,
        )
    width = enc["input_ids"].shape[1]
    mask = enc["attention_mask"].repeat_interleave(SAMPLES, 0)
    return seq, mask, width


def keep_mask(seq, width):
    new = seq[:, width:]
    ended = (new == tok.eos_token_id).cumsum(1)
    return ((ended == 0) | ((new == tok.eos_token_id) & (ended == 1))).long()


for step in range(STEPS):
    batch = random.sample(problems, PROMPTS)
    seq, prompt_mask, width = sample(batch)
    texts = tok.batch_decode(seq[:, width:], skip_special_tokens=True)
    good = [i for i, t in enumerate(texts) if is_correct(t, batch[i // SAMPLES]["answer"])]
    if not good:
        continue
    answer_mask = keep_mask(seq, width)
    attention = torch.cat([prompt_mask, answer_mask], 1)[good]
    ids = seq[good]
    labels = ids.clone()
    labels[:, :width] = -100
    labels[:, width:][answer_mask[good] == 0] = -100
    loss = model(input_ids=ids, attention_mask=attention, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    sched.step()
    opt.zero_grad()
    if step % 10 == 0:
        print(f"step {step} kept {len(good)}/{len(texts)} loss {loss.item():.4f}", flush=True)

model.save_pretrained("out/rft")
tok.save_pretrained("out/rft")
