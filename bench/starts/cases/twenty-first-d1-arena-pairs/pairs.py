import json
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset


@dataclass
class Comparison:
    question: str
    response_a: str
    response_b: str
    winner: str
    annotator: str

    def as_pair(self):
        if self.winner == "a":
            good, bad = self.response_a, self.response_b
        else:
            good, bad = self.response_b, self.response_a
        return {
            "prompt": [{"role": "user", "content": self.question}],
            "chosen": [{"role": "assistant", "content": good}],
            "rejected": [{"role": "assistant", "content": bad}],
        }


def load_pairs(path):
    rows = [Comparison(**json.loads(line)) for line in Path(path).open()]
    rows = [r for r in rows if r.winner != "tie"]
    return Dataset.from_list([r.as_pair() for r in rows])
