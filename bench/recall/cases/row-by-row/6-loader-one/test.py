import json
from functools import partial

import hydra
import torch
from runner import GenerationRunner
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def collate(rows, tok):
    chats = [[{"role": "user", "content": r["instruction"]}] for r in rows]
    enc = tok.apply_chat_template(chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True)
    return {"input_ids": enc["input_ids"], "attention_mask": enc["attention_mask"]}


@hydra.main(version_base=None, config_path=".", config_name="test")
def main(cfg):
    tok = AutoTokenizer.from_pretrained(cfg.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16, device_map="cuda")
    with open(cfg.test_file) as f:
        rows = [json.loads(x) for x in f]
    loader = DataLoader(rows, shuffle=False, collate_fn=partial(collate, tok=tok), **cfg.loader)
    texts = GenerationRunner(model, tok, cfg.max_new_tokens).run(loader)
    with open(cfg.output, "w") as f:
        for row, text in zip(rows, texts):
            f.write(json.dumps({**row, "prediction": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
