import sys

import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

LENGTH = 512


def load_blocks(path, tok):
    ids = []
    for row in load_dataset("json", data_files=path, split="train"):
        ids += tok(row["text"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    n = (len(ids) - 1) // LENGTH
    x = torch.tensor(ids[: n * LENGTH]).view(n, LENGTH)
    y = torch.tensor(ids[1 : n * LENGTH + 1]).view(n, LENGTH)
    return TensorDataset(x, y)


def main(path, out):
    set_seed(2)
    name = "HuggingFaceTB/SmolLM2-135M"
    tok = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).to("cuda")
    loader = DataLoader(load_blocks(path, tok), batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to("cuda"), y.to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(input_ids=x).logits
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i % 50 == 0:
            print(f"{i}/{len(loader)} {loss.item():.4f}")
    model.save_pretrained(out)
    tok.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:3])
