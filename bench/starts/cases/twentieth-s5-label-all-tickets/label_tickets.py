import csv
import json

from openai import OpenAI
from tqdm import tqdm

client = OpenAI(base_url="http://gpu03:8000/v1", api_key="none")
SYSTEM = "Classify the ticket. Reply with JSON: {\"product\", \"problem\", \"urgency\": low|mid|high, \"reason\"}."


def label(text: str) -> dict:
    reply = client.chat.completions.create(
        model="ticket-labeller",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
        temperature=0.0,
        max_tokens=256,
    )
    return json.loads(reply.choices[0].message.content)


def main():
    with open("tickets.csv", newline="") as handle:
        tickets = list(csv.DictReader(handle))
    with open("labels.jsonl", "w") as out:
        for ticket in tqdm(tickets):
            try:
                result = label(ticket["text"])
            except json.JSONDecodeError:
                result = None
            out.write(json.dumps({"id": ticket["id"], "label": result}) + "\n")


if __name__ == "__main__":
    main()
