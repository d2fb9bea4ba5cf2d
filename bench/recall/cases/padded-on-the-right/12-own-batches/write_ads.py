import csv
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from batches import prompt_loader


class Writer:
    def __init__(self, run):
        self.tok = AutoTokenizer.from_pretrained(run)
        self.model = AutoModelForCausalLM.from_pretrained(run, dtype=torch.bfloat16).to("cuda")
        self.model.eval()
        self.how = GenerationConfig(
            max_new_tokens=180,
            do_sample=True,
            temperature=0.7,
            top_p=0.9,
            pad_token_id=self.tok.pad_token_id,
            eos_token_id=self.tok.eos_token_id,
        )

    @torch.no_grad()
    def write(self, rows, batch_size=12):
        texts = []
        for batch in prompt_loader(rows, self.tok, batch_size):
            batch = {k: v.to("cuda") for k, v in batch.items()}
            out = self.model.generate(**batch, generation_config=self.how)
            start = batch["input_ids"].size(1)
            texts += self.tok.batch_decode(out[:, start:], skip_special_tokens=True)
        return texts


def main(run, source, target):
    torch.manual_seed(4)
    with open(source, newline="") as f:
        rows = list(csv.DictReader(f))
    texts = Writer(run).write(rows)
    with open(target, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["brief", "ad"])
        w.writerows([r["brief"], t.strip()] for r, t in zip(rows, texts))


if __name__ == "__main__":
    main(*sys.argv[1:4])
