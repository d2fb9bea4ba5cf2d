import sys

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

BLOCK, BATCH = 1024, 8


def make_blocks(tok):
    text = "\n\n".join(load_dataset("Salesforce/wikitext", "wikitext-103-raw-v1", split="test")["text"])
    ids = tok(text, return_tensors="pt").input_ids[0]
    n = ids.numel() // BLOCK
    return ids[: n * BLOCK].view(n, BLOCK)


@torch.inference_mode()
def main(path):
    tok = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to("cuda").eval()
    blocks = make_blocks(tok)
    loader = DataLoader(blocks, batch_size=BATCH, shuffle=False, drop_last=True)
    losses = []
    for ids in loader:
        ids = ids.to("cuda")
        losses.append(model(input_ids=ids, labels=ids).loss.float())
    ppl = torch.exp(torch.stack(losses).mean())
    print(f"{path}: {len(losses) * BATCH} blocks of {BATCH}x{BLOCK}, perplexity {ppl.item():.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
