import json, torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
from peft import LoraConfig, get_peft_model

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
tok = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16).cuda()
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
rows = [json.loads(l) for l in open("chats.jsonl")]
val = rows[:2000]
train = rows[2000:]


def collate(batch):
    enc = tok([tok.apply_chat_template(r["messages"], tokenize=False) for r in batch], return_tensors="pt", padding=True, truncation=True, max_length=1024, add_special_tokens=False)
    enc["labels"] = enc["input_ids"].masked_fill(enc["attention_mask"] == 0, -100)
    return enc


def validate():
    model.eval()
    total = 0.0
    n = 0
    for batch in DataLoader(val, batch_size=4, collate_fn=collate):
        batch = {k: v.cuda() for k, v in batch.items()}
        total += model(**batch).loss
        n += 1
    model.train()
    return (total / n).item()


opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
step = 0
for epoch in range(2):
    for batch in DataLoader(train, batch_size=4, shuffle=True, collate_fn=collate):
        batch = {k: v.cuda() for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        step += 1
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} mem {torch.cuda.memory_allocated() / 2**30:.1f} GiB", flush=True)
        if step % 500 == 0:
            print(f"step {step} val {validate():.4f}", flush=True)
model.save_pretrained("out")
