import json
import sys

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")

questions = [l.strip() for l in open(sys.argv[1]) if l.strip()]
with open("answers.jsonl", "w") as f:
    for q in questions:
        r = client.chat.completions.create(
            model="helpdesk",
            messages=[{"role": "user", "content": q}],
            temperature=0,
            max_tokens=256,
        )
        f.write(json.dumps({"question": q, "answer": r.choices[0].message.content, "finish": r.choices[0].finish_reason}) + "\n")
