import json
import sys
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

SIDE = {"batch_first": True, "padding_side": "left"}


def ids_of(tok, text):
    chat = [{"role": "user", "content": f"Give a title for this article:\n{text}"}]
    prompt = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return torch.tensor(tok(prompt, add_special_tokens=False)["input_ids"])


def join(items, pad_id):
    ids = pad_sequence(items, padding_value=pad_id, **SIDE)
    mask = pad_sequence([torch.ones_like(x) for x in items], padding_value=0, **SIDE)
    return {"input_ids": ids, "attention_mask": mask}


@torch.inference_mode()
def titles(model, tok, articles, size=16):
    out = []
    for i in range(0, len(articles), size):
        batch = join([ids_of(tok, a) for a in articles[i : i + size]], tok.pad_token_id)
        batch = {k: v.to(model.device) for k, v in batch.items()}
        made = model.generate(**batch, max_new_tokens=40, do_sample=False)
        out += tok.batch_decode(made[:, batch["input_ids"].size(1):], skip_special_tokens=True)
    return out


def main(run, source, target):
    tok = AutoTokenizer.from_pretrained(run)
    model = AutoModelForCausalLM.from_pretrained(run, dtype=torch.bfloat16).to("cuda").eval()
    rows = [json.loads(x) for x in Path(source).read_text().splitlines() if x]
    made = titles(model, tok, [r["article"] for r in rows])
    with open(target, "w") as f:
        for r, t in zip(rows, made):
            f.write(json.dumps({"id": r["id"], "title": t.strip()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
