import json
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
SYSTEM = "You sort insurance claims. Answer with the code of the claim alone."

with open("held_out.jsonl") as f, open("preds.jsonl", "w") as out:
    for line in f:
        row = json.loads(line)
        r = client.chat.completions.create(
            model="Qwen/Qwen2.5-7B-Instruct",
            messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["claim"]}],
            temperature=0.0,
            max_tokens=64,
        )
        out.write(json.dumps({"prompt": row["claim"], "reference": row["code"], "prediction": r.choices[0].message.content, "finish_reason": r.choices[0].finish_reason}) + "\n")
