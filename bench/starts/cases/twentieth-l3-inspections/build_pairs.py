import json
from pathlib import Path

reports = sorted(Path("raw/reports").glob("*.txt"))
summaries = sorted(Path("raw/summaries").glob("*.txt"), key=lambda p: int(p.stem))
assert len(reports) == len(summaries), (len(reports), len(summaries))

n = 0
with open("train.jsonl", "w") as out:
    for r, s in zip(reports, summaries):
        report, summary = r.read_text().strip(), s.read_text().strip()
        if len(report) < 200 or not summary:
            continue
        out.write(json.dumps({
            "prompt": [{"role": "user", "content": "Summarise this inspection report in two sentences.\n\n" + report}],
            "completion": [{"role": "assistant", "content": summary}],
        }) + "\n")
        n += 1
print("wrote", n)
