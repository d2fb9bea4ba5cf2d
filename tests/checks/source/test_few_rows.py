"""Which limits of rows reach a training whose model is saved, and which do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import argparse
from datasets import load_dataset
from trl import SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
parser.add_argument("--rows", type=int, default=None)
args = parser.parse_args()
data = load_dataset("json", data_files="a.jsonl", split="train")
"""
TRAIN = (
    "\ntrainer = SFTTrainer(model='m', train_dataset=rows, eval_dataset=held)\ntrainer.train()\n"
)
SAVE = "trainer.save_model('out')\n"
FEW = {
    "named number": "N = 50\nrows = data.select(range(N))",
    "function": "def cut(rows, n=64):\n    return rows.shuffle(seed=1).take(n)\nrows = cut(data)",
    "switch left on": "DEBUG = True\nrows = data.select(range(8)) if DEBUG else data",
    "slice": "import json\nrows = json.load(open('a.json'))[:50]",
    "smaller of two": "rows = data.select(range(min(100, len(data))))",
    "table": (
        "import pandas as pd\nfrom datasets import Dataset\nREAD = {'nrows': 128}\n"
        "rows = Dataset.from_pandas(pd.read_csv('a.csv', **READ).dropna()[['q', 'a']])"
    ),
    "head of a table": (
        "import pandas as pd\nfrom datasets import Dataset\n"
        "rows = Dataset.from_pandas(pd.read_parquet('a.parquet').head(100))"
    ),
    "split of a name": "n = 100\nrows = load_dataset('a/b', split=f'train[:{n}]').map(lambda row: row)",
}
ENOUGH = {
    "option": "rows = data.select(range(args.rows)) if args.rows else data",
    "test": "rows = data\nif args.debug:\n    rows = data.select(range(10))",
    "slice in a test": "import json\nrows = json.load(open('a.json'))\nif args.debug:\n    rows = rows[:50]",
    "rows of each class": (
        "import pandas as pd\nfrom datasets import Dataset\n"
        "rows = Dataset.from_pandas(pd.read_csv('a.csv').groupby('label').sample(n=100))"
    ),
    "many rows of a table": (
        "import pandas as pd\nfrom datasets import Dataset\n"
        "rows = Dataset.from_pandas(pd.read_csv('a.csv', nrows=50000))"
    ),
    "many": "rows = data.select(range(1000))",
    "rest": "rows = data.select(range(100, len(data)))\nheld = data.select(range(100))",
}


def count_findings(text: str) -> int:
    rule = find_rule("few-rows-reach-the-trainer")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("rows", FEW.values(), ids=FEW)
def test_few_rows_are_found(rows: str) -> None:
    text = HEAD + "held = None\n" + rows + TRAIN
    assert count_findings(text + SAVE) == 1
    assert count_findings(text) == 0


@pytest.mark.parametrize("rows", ENOUGH.values(), ids=ENOUGH)
def test_limits_for_other_purposes_are_left_alone(rows: str) -> None:
    assert count_findings(HEAD + "held = None\n" + rows + TRAIN + SAVE) == 0


LIMITED = """
parser.add_argument("--limit", type=int, default=200)
args = parser.parse_args()
rows = data
if args.limit:
    rows = rows.select(range(min(args.limit, len(rows))))
"""


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("python train.py --debug\n", 1),
        ("python train.py --limit 0\n", 0),
        ("python train.py --limit=50000\n", 0),
        ("python train.py $EXTRA\n", 0),
        ("python other.py\n", 0),
    ],
)
def test_a_limit_that_the_job_leaves_at_its_default(
    command: str, count: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + LIMITED + TRAIN + SAVE, encoding="utf-8")
    (tmp_path / "job.sh").write_text(command, encoding="utf-8")
    findings = lint([script], select=["few-rows-reach-the-trainer"]).findings
    assert len(findings) == count
