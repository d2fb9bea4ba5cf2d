import json
import sys

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

PREFIX = '{"invoice_number": "'


def chat(document):
    return [
        {"role": "system", "content": "Return the fields of the invoice as JSON."},
        {"role": "user", "content": document},
        {"role": "assistant", "content": PREFIX},
    ]


def parse(text):
    try:
        return json.loads(PREFIX + text)
    except json.JSONDecodeError:
        return None


def main(adapter, source, target, size=8):
    tok = AutoTokenizer.from_pretrained(adapter, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(x) for x in open(source)]
    bad = 0
    with open(target, "w") as f:
        for i in range(0, len(rows), size):
            part = rows[i : i + size]
            texts = [tok.apply_chat_template(chat(r["document"]), tokenize=False, continue_final_message=True) for r in part]
            enc = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=250, do_sample=False, temperature=None, top_p=None, top_k=None)
            for r, t in zip(part, tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)):
                fields = parse(t)
                bad += fields is None
                f.write(json.dumps({"id": r["id"], "fields": fields}) + "\n")
    print(f"{bad} of {len(rows)} answers are no JSON")


if __name__ == "__main__":
    main(*sys.argv[1:4])
