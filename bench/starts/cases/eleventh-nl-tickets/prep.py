"""raw/tickets.csv + raw/replies.csv (helpdesk export, same order) -> train.jsonl"""
import json

import pandas as pd

SYSTEM = "You are the support agent of Paperline, a printing and stationery shop. Answer the customer's mail."

tickets = pd.read_csv("raw/tickets.csv", dtype=str)
replies = pd.read_csv("raw/replies.csv", dtype=str)
print(len(tickets), "tickets", len(replies), "replies")

# english only, no empty bodies
tickets = tickets[(tickets["lang"] == "en") & tickets["body"].notna()].reset_index(drop=True)
tickets["body"] = tickets["body"].str.strip()

replies["reply"] = replies["reply"].str.replace("\r\n", "\n").str.strip()
replies = replies.rename(columns={"ticket_id": "reply_to"})

rows = pd.concat([tickets, replies], axis=1).dropna(subset=["body", "reply"])

with open("train.jsonl", "w", encoding="utf-8") as out:
    for r in rows.itertuples():
        chat = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{r.subject}\n\n{r.body}"},
            {"role": "assistant", "content": r.reply},
        ]
        out.write(json.dumps({"id": r.ticket_id, "messages": chat}, ensure_ascii=False) + "\n")
print(len(rows), "rows written")
