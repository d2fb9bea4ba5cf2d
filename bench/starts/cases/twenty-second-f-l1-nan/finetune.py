import json
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


@dataclass
class Settings:
    model: str = "HuggingFaceTB/SmolLM2-360M-Instruct"
    data: str = "chats.jsonl"
    out: str = "out"
    lr: float = 2e-5
    batch_size: int = 8
    epochs: int = 3
    max_length: int = 768
    dtype: torch.dtype = torch.float16
    log_every: int = 10


class Chats(Dataset):
    def __init__(self, path, tokenizer, max_length):
        self.rows = []
        for line in open(path):
            messages = json.loads(line)["messages"]
            prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
            prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            answer_ids = tokenizer(messages[-1]["content"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
            ids = (prompt_ids + answer_ids)[:max_length]
            labels = ([-100] * len(prompt_ids) + answer_ids)[:max_length]
            self.rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def load(s):
    tokenizer = AutoTokenizer.from_pretrained(s.model)
    model = AutoModelForCausalLM.from_pretrained(s.model, dtype=s.dtype)
    return model.to("cuda"), tokenizer


def main(s):
    torch.manual_seed(0)
    model, tokenizer = load(s)
    rows = Chats(s.data, tokenizer, s.max_length)
    loader = DataLoader(rows, batch_size=s.batch_size, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tokenizer, padding=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr)
    total = s.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=total)
    model.train()
    step = 0
    for epoch in range(s.epochs):
        for batch in tqdm(loader, disable=True):
            batch = batch.to("cuda")
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if step % s.log_every == 0:
                print(f"epoch={epoch} step={step} loss={loss.item():.4f} lr={scheduler.get_last_lr()[0]:.2e}", flush=True)
            step += 1
    model.save_pretrained(s.out)
    tokenizer.save_pretrained(s.out)


if __name__ == "__main__":
    main(Settings())
