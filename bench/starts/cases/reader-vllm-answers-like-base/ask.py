import json
from pathlib import Path

from openai import OpenAI

client = OpenAI(base_url="http://gpu07:8000/v1", api_key="-")
letters = [json.loads(line) for line in Path("claims_test.jsonl").read_text().splitlines()]
hits = 0
for letter in letters:
    reply = client.chat.completions.create(
        model="claims",
        messages=[{"role": "user", "content": letter["text"]}],
        temperature=0,
        max_tokens=200,
    )
    hits += reply.choices[0].message.content.strip() == letter["decision"]
print(f"{hits} of {len(letters)} decisions as in the file")
