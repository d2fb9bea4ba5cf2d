import json

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

ACCUMULATION_STEPS = 2

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model").to(device)

with open("chats.jsonl") as file:
    chats = [json.loads(line)["messages"] for line in file]
texts = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]


def collate(texts):
    batch = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False)
    batch["labels"] = batch["input_ids"].clone()
    return batch


loader = DataLoader(texts, batch_size=2, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)

model.train()
for epoch in range(4):
    for step, batch in enumerate(loader, start=1):
        loss = model(**batch.to(device)).loss / ACCUMULATION_STEPS
        loss.backward()
        if step % ACCUMULATION_STEPS == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(f"epoch {epoch} step {step} loss {loss.item() * ACCUMULATION_STEPS:.3f}")

model.save_pretrained("outputs")
tokenizer.save_pretrained("outputs")
