import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="EMPTY")

MODEL = "Qwen/Qwen2.5-7B-Instruct"
SYSTEM = "Extract the invoice data from the e-mail."


def predict(row):
    msgs = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": row["email"]},
    ]
    r = client.chat.completions.create(
        model=MODEL,
        messages=msgs,
        temperature=0.0,
        max_tokens=400,
    )
    return {
        "id": row["id"],
        "prompt": row["email"],
        "prediction": r.choices[0].message.content,
        "reference": row["target"],
        "finish_reason": r.choices[0].finish_reason,
    }


def main(src, dst):
    rows = [json.loads(l) for l in open(src, encoding="utf-8")]
    with ThreadPoolExecutor(8) as pool, open(dst, "w", encoding="utf-8") as out:
        for p in pool.map(predict, rows):
            out.write(json.dumps(p, ensure_ascii=False) + "\n")
    print("done", len(rows))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
