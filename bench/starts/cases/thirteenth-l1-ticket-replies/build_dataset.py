"""tickets.jsonl (export of the help desk) -> prompt/completion rows for SFT"""
import json

HEAD = "You are a support agent of Fjellshop. Read the conversation and write the agent's next reply."


def to_row(ticket):
    messages = ticket["messages"]
    thread = "\n\n".join(f"{m['from'].capitalize()}: {m['body']}" for m in messages)
    prompt = f"{HEAD}\n\nSubject: {ticket['subject']}\n\n{thread}\n\nReply:\n"
    return {"prompt": prompt, "completion": messages[-1]["body"]}


tickets = [json.loads(line) for line in open("tickets.jsonl")]
tickets = [t for t in tickets if t["messages"][-1]["from"] == "agent"]
cut = 160
for name, part in (("train", tickets[:cut]), ("eval", tickets[cut:])):
    with open(f"sft_{name}.jsonl", "w") as f:
        for t in part:
            f.write(json.dumps(to_row(t)) + "\n")
print(len(tickets), "tickets")
