"""Precision and recall of extracted triples for a finished Axolotl run."""
import argparse
import json
from pathlib import Path

import yaml
from vllm import LLM, SamplingParams


def triples(text):
    found = set()
    for line in text.splitlines():
        parts = [p.strip().lower() for p in line.split("|")]
        if len(parts) == 3 and all(parts):
            found.add(tuple(parts))
    return found


class TripleEval:
    def __init__(self, config_file):
        cfg = yaml.safe_load(Path(config_file).read_text())
        self.out = Path(cfg["output_dir"])
        self.llm = LLM(
            model=cfg["base_model"],
            dtype="bfloat16",
            max_model_len=cfg["sequence_len"],
            seed=0,
        )
        self.params = SamplingParams(temperature=0, max_tokens=600)

    def run(self, rows):
        chats = [r["messages"][:-1] for r in rows]
        tp = n_pred = n_gold = 0
        answers = []
        for row, res in zip(rows, self.llm.chat(chats, self.params)):
            text = res.outputs[0].text
            answers.append(text)
            pred, gold = triples(text), triples(row["messages"][-1]["content"])
            tp, n_pred, n_gold = tp + len(pred & gold), n_pred + len(pred), n_gold + len(gold)
        return {"precision": tp / max(n_pred, 1), "recall": tp / max(n_gold, 1)}, answers


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="config.yml")
    ap.add_argument("--test", default="data/triples_test.jsonl")
    a = ap.parse_args()
    job = TripleEval(a.config)
    metrics, answers = job.run([json.loads(x) for x in open(a.test)])
    (job.out / "test_answers.json").write_text(json.dumps(answers, indent=1))
    (job.out / "test_metrics.json").write_text(json.dumps(metrics))
    print(metrics)
