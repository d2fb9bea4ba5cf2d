import json
import sys

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def ask(instruction, context):
    r = client.chat.completions.create(
        model="helpdesk",
        messages=[{"role": "user", "content": f"{instruction}\n\n{context}".strip()}],
        temperature=0.0,
        max_tokens=300,
    )
    c = r.choices[0]
    return c.message.content, c.finish_reason


if __name__ == "__main__":
    with open(sys.argv[1]) as f, open("responses.jsonl", "w") as out:
        for line in f:
            row = json.loads(line)
            text, why = ask(row["instruction"], row.get("input", ""))
            out.write(json.dumps({"prompt": row["instruction"] + "\n\n" + row.get("input", ""), "response": text,
                                  "reference": row["output"], "finish_reason": why}) + "\n")
