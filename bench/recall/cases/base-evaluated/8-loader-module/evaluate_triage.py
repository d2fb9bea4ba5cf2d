import json
import sys

import torch
from loading import load_run
from sklearn.metrics import classification_report

INSTRUCTION = "Sort the patient message into: urgent, routine, administrative. Answer with the word only."


def main(run, test_file):
    model, tok = load_run(run)
    rows = [json.loads(x) for x in open(test_file)]
    predictions = []
    for i in range(0, len(rows), 32):
        chats = [
            [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": r["message"]}]
            for r in rows[i : i + 32]
        ]
        enc = tok.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(model.device)
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=5, do_sample=False, temperature=None, top_p=None, top_k=None)
        texts = tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        predictions += [t.strip().lower() for t in texts]
    print(classification_report([r["label"] for r in rows], predictions, zero_division=0))


if __name__ == "__main__":
    main(*sys.argv[1:3])
