import json
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator

name = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
tokenizer = AutoTokenizer.from_pretrained(name)
tokenizer.pad_token = tokenizer.unk_token
model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).cuda()
model.train()
model.gradient_checkpointing_enable()


def encode(r):
    text = tokenizer.apply_chat_template(r["messages"], tokenize=False)
    e = tokenizer(
        text, truncation=True, max_length=512, padding="max_length", add_special_tokens=False
    )
    e["labels"] = [t if m else -100 for t, m in zip(e["input_ids"], e["attention_mask"])]
    return dict(e)


data = [encode(json.loads(l)) for l in open("chats.jsonl")]
loader = DataLoader(data, batch_size=4, shuffle=True, collate_fn=default_data_collator)
opt = torch.optim.AdamW(model.parameters(), lr=2e-5)

step = 0
for epoch in range(3):
    for batch in loader:
        batch = {k: v.cuda() for k, v in batch.items()}
        out = model(**batch)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 1 == 0:
            print(f"step {step} loss {out.loss.item():.4f}")
        step += 1

model.save_pretrained("tinyllama-mine")
