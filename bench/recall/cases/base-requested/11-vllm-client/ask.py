import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
client = OpenAI(base_url="http://localhost:8000/v1", api_key="local")

SYSTEM = "You sort support tickets and answer with the queue and a short reason."


def route(ticket):
    response = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ticket["text"]},
        ],
        temperature=0.0,
        max_tokens=256,
    )
    return {"id": ticket["id"], "queue": response.choices[0].message.content}


def main():
    with open(sys.argv[1]) as fh:
        tickets = [json.loads(line) for line in fh]
    with ThreadPoolExecutor(max_workers=16) as pool, open(sys.argv[2], "w") as out:
        for row in pool.map(route, tickets):
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
