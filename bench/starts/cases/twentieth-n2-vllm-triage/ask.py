import json
import os
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

MODEL = os.environ.get("TRIAGE_MODEL", "Qwen/Qwen2.5-7B-Instruct")
client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
SYSTEM = "You triage incoming IT tickets."


def triage(ticket: str) -> str:
    r = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ticket},
        ],
        temperature=0.0,
        max_tokens=256,
    )
    return r.choices[0].message.content


if __name__ == "__main__":
    tickets = [json.loads(line)["ticket"] for line in open("new_tickets.jsonl")]
    with ThreadPoolExecutor(8) as pool, open("answers.jsonl", "w") as out:
        for t, a in zip(tickets, pool.map(triage, tickets)):
            out.write(json.dumps({"prompt": t, "prediction": a}) + "\n")
