import json
import sys

from openai import OpenAI

BASE = "meta-llama/Llama-3.1-8B-Instruct"
SYSTEM = "You sort support tickets and answer with the queue and a short reason."
client = OpenAI(base_url="http://localhost:8000/v1", api_key="local")


def tuned_name():
    names = [card.id for card in client.models.list().data if card.parent]
    if len(names) != 1:
        raise SystemExit(f"expected one adapter over {BASE}, found {names}")
    return names[0]


def route(name, ticket):
    response = client.chat.completions.create(
        model=name,
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ticket["text"]},
        ],
        temperature=0.0,
        max_tokens=256,
    )
    return {"id": ticket["id"], "queue": response.choices[0].message.content}


def main():
    name = tuned_name()
    with open(sys.argv[1]) as fh, open(sys.argv[2], "w") as out:
        for line in fh:
            out.write(json.dumps(route(name, json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
