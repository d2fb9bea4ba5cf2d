import json

import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

tokenizer = AutoTokenizer.from_pretrained("tokenizer")
with open("rows.jsonl", encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]


def collate(batch):
    ids, labels = [], []
    for row in batch:
        prompt = tokenizer(row["problem"] + "\n")["input_ids"]
        answer = tokenizer(row["state"])["input_ids"] + [tokenizer.eos_token_id]
        ids.append(torch.tensor(prompt + answer))
        labels.append(torch.tensor([-100] * len(prompt) + answer))
    padded = torch.nn.utils.rnn.pad_sequence(
        ids, batch_first=True, padding_value=tokenizer.pad_token_id
    )
    targets = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(one) for one in ids], batch_first=True)
    return {"input_ids": padded, "attention_mask": mask, "labels": targets}


torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
