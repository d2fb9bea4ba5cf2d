import csv
import json

INSTRUCTION = "You are the support desk of Orbit Systems. Write the reply to the customer of this ticket."

rows = []
for t in csv.DictReader(open("export.csv", newline="")):
    if t["status"] != "solved" or not t["solution"].strip():
        continue
    rows.append({
        "instruction": INSTRUCTION,
        "input": f"Subject: {t['subject']}\n\n{t['thread']}",
        "output": t["solution"].strip(),
    })

with open("data/helpdesk.json", "w") as f:
    json.dump(rows, f, indent=1, ensure_ascii=False)
print(len(rows), "tickets")
