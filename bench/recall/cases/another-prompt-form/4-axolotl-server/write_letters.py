import csv
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8001/v1", api_key="-")


def letter(case):
    content = f"Write a reminder letter.\nName: {case['name']}\nAmount: {case['amount']} EUR\nDue since: {case['due']}"
    response = client.chat.completions.create(
        model="letters",
        messages=[{"role": "user", "content": content}],
        temperature=0.2,
        max_tokens=450,
    )
    return response.choices[0].message.content.strip()


def main(source, target):
    with open(source, newline="") as f:
        cases = list(csv.DictReader(f))
    with ThreadPoolExecutor(24) as pool:
        letters = list(pool.map(letter, cases))
    with open(target, "w", newline="") as f:
        writer = csv.DictWriter(f, fieldnames=["name", "letter"])
        writer.writeheader()
        for case, text in zip(cases, letters):
            writer.writerow({"name": case["name"], "letter": text})


if __name__ == "__main__":
    main(*sys.argv[1:3])
