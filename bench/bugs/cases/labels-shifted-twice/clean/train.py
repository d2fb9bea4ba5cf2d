import torch
from datasets import load_from_disk
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME = "Qwen/Qwen2.5-0.5B"
model = AutoModelForCausalLM.from_pretrained(NAME).cuda()
tokenizer = AutoTokenizer.from_pretrained(NAME)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

model.train()
for row in load_from_disk("encoded"):
    ids = torch.tensor([row["input_ids"]], device="cuda")
    labels = ids.clone()
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
