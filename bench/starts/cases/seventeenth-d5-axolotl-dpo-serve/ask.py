import json
import sys

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
model = sys.argv[1]  # l31-dpo, or meta-llama/Llama-3.1-8B-Instruct for the base
out = open(f"answers-{model.split('/')[-1]}.jsonl", "w")

for line in open("data/heldout.jsonl"):
    row = json.loads(line)
    reply = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "system", "content": row["system"]},
            {"role": "user", "content": row["question"]},
        ],
        temperature=0,
        max_tokens=600,
    )
    out.write(json.dumps({"question": row["question"], "answer": reply.choices[0].message.content}) + "\n")
