import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

BASE = "Qwen/Qwen2.5-7B-Instruct"
client = OpenAI(base_url="http://localhost:8000/v1", api_key="EMPTY")


def adapter_name():
    """The one served entry that hangs on the base model."""
    names = [m.id for m in client.models.list() if m.id != BASE]
    if len(names) != 1:
        raise SystemExit(f"expected one adapter on the server, found {names}")
    return names[0]


def reply(model, ticket):
    r = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "system", "content": "You are the support agent of Nordwind broadband."},
            {"role": "user", "content": ticket["text"]},
        ],
        temperature=0.2,
        max_tokens=400,
    )
    return {"id": ticket["id"], "reply": r.choices[0].message.content}


def main(source, target):
    model = adapter_name()
    tickets = [json.loads(x) for x in open(source)]
    with ThreadPoolExecutor(32) as pool, open(target, "w") as f:
        for r in pool.map(lambda t: reply(model, t), tickets):
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
