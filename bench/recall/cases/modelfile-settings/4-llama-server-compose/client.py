import sys

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8080/v1", api_key="none")

reply = client.chat.completions.create(
    model="letters",
    messages=[{"role": "user", "content": sys.argv[1]}],
    temperature=0.4,
    max_tokens=600,
)
print(reply.choices[0].message.content)
