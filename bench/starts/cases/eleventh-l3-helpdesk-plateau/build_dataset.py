"""Zendesk export -> Alpaca rows for LLaMA-Factory."""
import json
from pathlib import Path

import pandas as pd

EXPORT = Path("export")

tickets = pd.read_csv(EXPORT / "tickets.csv", parse_dates=["created_at"])
comments = pd.read_csv(EXPORT / "comments.csv", parse_dates=["created_at"])

# first message of the customer
tickets = tickets[tickets["status"].isin(["solved", "closed"])]
tickets = tickets[tickets["description"].str.len().between(20, 2000)]
tickets = tickets.sort_values("created_at").reset_index(drop=True)

# first public reply of an agent
replies = comments[(comments["author_role"] == "agent") & comments["public"]]
replies = replies.sort_values("created_at").drop_duplicates("ticket_id", keep="first")
replies = replies[replies["ticket_id"].isin(tickets["id"])].reset_index(drop=True)

tickets = tickets[tickets["id"].isin(replies["ticket_id"])].reset_index(drop=True)
assert len(tickets) == len(replies)

df = pd.DataFrame(
    {
        "instruction": tickets["description"].str.strip(),
        "input": "",
        "output": replies["body"].str.strip(),
    }
)

df = df.drop_duplicates("instruction")
df = df.sample(frac=1.0, random_state=2024)

out = Path("data/helpdesk.json")
out.parent.mkdir(exist_ok=True)
out.write_text(json.dumps(df.to_dict("records"), ensure_ascii=False, indent=1))
print(f"{len(df)} rows -> {out}")
