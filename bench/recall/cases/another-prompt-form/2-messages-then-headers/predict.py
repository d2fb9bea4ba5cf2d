import argparse
import json

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

PROMPT = """Below is a database schema and a question. Write the SQL query that answers the question.

### Schema:
{schema}

### Question:
{question}

### SQL:
"""


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--run", default="runs/sql")
    ap.add_argument("--test", default="data/sql_test.jsonl")
    ap.add_argument("--out", default="sql_predictions.jsonl")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.run, padding_side="left")
    model = AutoPeftModelForCausalLM.from_pretrained(a.run, dtype=torch.bfloat16, device_map="auto").eval()
    rows = [json.loads(x) for x in open(a.test)]
    with open(a.out, "w") as f:
        for i in range(0, len(rows), 16):
            part = rows[i : i + 16]
            texts = [PROMPT.format(schema=r["schema"], question=r["question"]) for r in part]
            enc = tok(texts, padding=True, return_tensors="pt").to(model.device)
            with torch.inference_mode():
                out = model.generate(**enc, max_new_tokens=200, do_sample=False, temperature=None, top_p=None, top_k=None)
            for r, t in zip(part, tok.batch_decode(out[:, enc.input_ids.shape[1] :], skip_special_tokens=True)):
                f.write(json.dumps({"id": r["id"], "sql": t.strip(), "gold": r["sql"]}) + "\n")


if __name__ == "__main__":
    main()
