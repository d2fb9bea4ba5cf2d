import json
import sys

import torch
from common import ASK, conversation
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer


def main(adapter, test_file, size=32):
    tok = AutoTokenizer.from_pretrained(adapter, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(x) for x in open(test_file)]
    hits = 0
    for i in range(0, len(rows), size):
        part = rows[i : i + size]
        enc = tok.apply_chat_template([conversation(r) for r in part], **ASK).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=24, do_sample=False, temperature=None, top_p=None, top_k=None)
        texts = tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        hits += sum(t.strip().lower() in [a.lower() for a in r["answers"]] for t, r in zip(texts, part))
    print(f"{hits / len(rows):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
