import json

from openai import OpenAI

SERVERS = {"before": "http://localhost:8000/v1", "after": "http://localhost:8001/v1"}


def connect(url):
    client = OpenAI(base_url=url, api_key="-")
    return client, client.models.list().data[0].id


def ask(client, model, question):
    r = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=300,
    )
    return r.choices[0].message.content


servers = {name: connect(url) for name, url in SERVERS.items()}
with open("questions.txt") as f, open("compare.jsonl", "w") as out:
    for question in map(str.strip, f):
        row = {"question": question}
        for name, (client, model) in servers.items():
            row[name] = ask(client, model, question)
        out.write(json.dumps(row) + "\n")
