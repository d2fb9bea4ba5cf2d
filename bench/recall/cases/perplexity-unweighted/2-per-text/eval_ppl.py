import json
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(path):
    tok = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cuda:0")
    return model.eval(), tok


def read_texts(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line)["text"] for line in f]


@torch.inference_mode()
def score(model, tok, texts, max_len=2048):
    ppls = []
    for text in texts:
        ids = tok(text, return_tensors="pt", truncation=True, max_length=max_len).input_ids.to(model.device)
        if ids.shape[1] < 2:
            continue
        loss = model(input_ids=ids, labels=ids).loss.float()
        ppls.append(torch.exp(loss).item())
    return ppls


if __name__ == "__main__":
    texts = read_texts(sys.argv[1])
    table = {}
    for name in sys.argv[2:]:
        model, tok = load(name)
        ppls = score(model, tok, texts)
        table[name] = round(float(np.mean(ppls)), 3)
        del model
        torch.cuda.empty_cache()
    print(json.dumps({"texts": len(texts), "perplexity": table}, indent=2))
