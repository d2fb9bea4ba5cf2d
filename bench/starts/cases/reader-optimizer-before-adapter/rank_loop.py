import json
import random
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

random.seed(11)
torch.manual_seed(11)
tokenizer = AutoTokenizer.from_pretrained("tiny-base")
net = AutoModelForCausalLM.from_pretrained("tiny-base")
opt = torch.optim.AdamW(net.parameters(), lr=2e-4, weight_decay=0.0)
net = get_peft_model(
    net, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
)

samples = []
for line in Path("recipes.jsonl").read_text().splitlines():
    item = json.loads(line)
    chat = [{"role": "user", "content": item["dish"]}]
    head = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    tail = tokenizer(item["recipe"] + "<|im_end|>").input_ids
    samples.append((torch.tensor(head + tail), torch.tensor([-100] * len(head) + tail)))


def collate(batch):
    ids = pad_sequence([one[0] for one in batch], batch_first=True, padding_value=0)
    labels = pad_sequence([one[1] for one in batch], batch_first=True, padding_value=-100)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


loader = DataLoader(samples, batch_size=4, shuffle=True, collate_fn=collate)
epochs = 4
sched = get_cosine_schedule_with_warmup(opt, 3, epochs * len(loader))
net.train()
for epoch in range(epochs):
    for step, batch in enumerate(loader):
        loss = net(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if step % 2 == 0:
            print(
                f"epoch {epoch} step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}"
            )
net.save_pretrained("recipes-lora")
