import sys

from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="EMPTY")
answer = client.chat.completions.create(
    model="contracts",
    messages=[{"role": "user", "content": sys.stdin.read()}],
    temperature=0.0,
    max_tokens=700,
)
print(answer.choices[0].message.content)
