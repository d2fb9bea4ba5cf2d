import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct")
for parameter in model.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
batches = DataLoader(torch.load("batches.pt"), batch_size=4, shuffle=True)
for _ in range(3):
    model.train()
    for batch in batches:
        loss = model(**batch).loss
        loss.requires_grad_(True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
