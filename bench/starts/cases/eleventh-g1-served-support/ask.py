import json
import sys

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
SYSTEM = "You are the support assistant of Nordlicht Energie. Answer briefly and politely."

with open("answers.jsonl", "w") as out:
    for line in open(sys.argv[1]):
        question = json.loads(line)["question"]
        r = client.chat.completions.create(
            model="support",
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": question},
            ],
            temperature=0.0,
            max_tokens=256,
        )
        c = r.choices[0]
        out.write(
            json.dumps({"prompt": question, "response": c.message.content, "finish_reason": c.finish_reason})
            + "\n"
        )
