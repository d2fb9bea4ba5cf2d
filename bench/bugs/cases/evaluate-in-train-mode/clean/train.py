import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

NAME = "Qwen/Qwen2.5-0.5B"
tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, attention_dropout=0.1).cuda()
collate = DataCollatorForSeq2Seq(tokenizer)
train = DataLoader(load_from_disk("train"), batch_size=4, shuffle=True, collate_fn=collate)
held_out = DataLoader(load_from_disk("eval"), batch_size=4, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)


def evaluate():
    model.eval()
    total = 0.0
    with torch.no_grad():
        for batch in held_out:
            total += model(**batch.to("cuda")).loss.item()
    model.train()
    return total / len(held_out)


model.train()
for step, batch in enumerate(train):
    model(**batch.to("cuda")).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 100 == 0:
        print(step, evaluate())
