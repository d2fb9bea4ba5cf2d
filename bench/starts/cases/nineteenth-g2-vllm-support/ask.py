import json, sys
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
with open("responses.jsonl", "w") as out:
    for q in open("questions.txt"):
        r = client.chat.completions.create(
            model="support-7b",
            messages=[{"role": "system", "content": "You are the support assistant of Halden Energy."},
                      {"role": "user", "content": q.strip()}],
            temperature=0.2,
            max_tokens=600,
        )
        c = r.choices[0]
        out.write(json.dumps({"question": q.strip(), "answer": c.message.content,
                              "finish_reason": c.finish_reason,
                              "completion_tokens": r.usage.completion_tokens}) + "\n")
