import argparse

import pandas as pd
import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

INSTR = "Which department handles this letter? Reply with one of: tax, parking, housing, other."


def load(base, adapter):
    tok = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, device_map="cuda")
    model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    return model.eval(), tok


def predict(letters, base, adapter):
    model, tok = load(base, adapter)
    texts = [
        tok.apply_chat_template(
            [{"role": "system", "content": INSTR}, {"role": "user", "content": x}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for x in letters
    ]
    enc = tok(texts, padding=True, add_special_tokens=False, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=5, do_sample=False, temperature=None, top_p=None, top_k=None)
    return [t.strip().lower() for t in tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--base", default="Qwen/Qwen2.5-1.5B-Instruct")
    ap.add_argument("--adapter", default="out/letters")
    ap.add_argument("--csv", default="data/letters_test.csv")
    ap.add_argument("--bs", type=int, default=32)
    a = ap.parse_args()

    df = pd.read_csv(a.csv)
    labels = []
    for i in tqdm(range(0, len(df), a.bs)):
        labels.extend(predict(df["letter"].iloc[i : i + a.bs].tolist(), a.base, a.adapter))
    df["predicted"] = labels
    print("accuracy", (df["predicted"] == df["department"]).mean())
    df.to_csv("letters_predicted.csv", index=False)


if __name__ == "__main__":
    main()
