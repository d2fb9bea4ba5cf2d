import json
import time
from pathlib import Path

from sampler import SampleConfig, Sampler

MODEL = "outputs/qwen2.5-7b-reports/merged"

sampler = Sampler(MODEL)
cfg = SampleConfig(max_new_tokens=2048)
with open("reports.jsonl", "w") as out:
    for i, line in enumerate(Path("cases.jsonl").open()):
        row = json.loads(line)
        begin = time.perf_counter()
        text, count = sampler.answer(row["messages"], cfg)
        seconds = time.perf_counter() - begin
        print(f"[{i:03d}] {count} tokens in {seconds:.1f} s ({count / seconds:.1f} tok/s)", flush=True)
        out.write(json.dumps({"id": row["id"], "report": text}) + "\n")
