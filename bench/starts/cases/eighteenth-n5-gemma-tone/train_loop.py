# brand voice SFT, own loop so I can see what happens
import json, math, random, time
import torch
from torch.utils.data import DataLoader
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, Gemma3ForConditionalGeneration, get_cosine_schedule_with_warmup

MODEL = "google/gemma-3-4b-it"
OUT = "out/voice-lora"
EPOCHS, BS, ACC, LR, MAXLEN = 3, 2, 8, 1e-4, 1536

acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACC)
torch.manual_seed(1)
random.seed(1)

tok = AutoTokenizer.from_pretrained(MODEL)
model = Gemma3ForConditionalGeneration.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="eager")
model.config.use_cache = False
lora = LoraConfig(
    r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
)
model = get_peft_model(model, lora)
for p in model.parameters():
    if p.requires_grad:
        p.data = p.data.float()
model.print_trainable_parameters()


def encode(row):
    prompt = tok.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, tokenize=False)
    full = prompt + row["messages"][-1]["content"].strip() + "<end_of_turn>\n"
    p = tok(prompt, add_special_tokens=False).input_ids
    ids = tok(full, add_special_tokens=False).input_ids[:MAXLEN]
    return ids, [-100] * min(len(p), len(ids)) + ids[len(p):]


def collate(batch):
    n = max(len(i) for i, _ in batch)
    ids = torch.tensor([i + [tok.pad_token_id] * (n - len(i)) for i, _ in batch])
    lab = torch.tensor([l + [-100] * (n - len(l)) for _, l in batch])
    att = torch.tensor([[1] * len(i) + [0] * (n - len(i)) for i, _ in batch])
    return {"input_ids": ids, "labels": lab, "attention_mask": att, "token_type_ids": torch.zeros_like(ids)}


rows = [encode(json.loads(l)) for l in open("voice.jsonl")]
loader = DataLoader(rows, batch_size=BS, shuffle=True, collate_fn=collate, drop_last=True)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
total = EPOCHS * math.ceil(len(loader) / ACC)
sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)
model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

step, t0, running = 0, time.time(), []
model.train()
for epoch in range(EPOCHS):
    for batch in loader:
        with acc.accumulate(model):
            loss = model(**batch).loss
            acc.backward(loss)
            if acc.sync_gradients:
                gn = acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
        running.append(loss.item())
        if acc.sync_gradients:
            step += 1
            if step % 5 == 0:
                print(f"step {step:4d}/{total} epoch {epoch} loss {sum(running)/len(running):.4f} "
                      f"gnorm {gn:.3f} lr {sched.get_last_lr()[0]:.2e} {time.time()-t0:.0f}s", flush=True)
                running = []

acc.wait_for_everyone()
acc.unwrap_model(model).save_pretrained(OUT)
tok.save_pretrained(OUT)
