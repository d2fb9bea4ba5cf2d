"""Which pairs a script builds the wrong way round, and which not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import heapq, json, random
from operator import itemgetter
import numpy as np
import pandas as pd
from datasets import load_dataset
data = load_dataset("json", data_files="answers.jsonl", split="train")
"""
PAIR = """
    return {"prompt": row["prompt"], "chosen": CHOSEN, "rejected": REJECTED}
pairs = data.map(to_pair)
"""


def made_by(body: str, chosen: str, rejected: str) -> str:
    pair = PAIR.replace("CHOSEN", chosen).replace("REJECTED", rejected)
    return f"def to_pair(row):\n    {body}{pair}"


FIRST, LAST = 'ranked[0]["text"]', 'ranked[-1]["text"]'
SCORE = 'key=lambda a: a["score"]'
WRONG = {
    "ascending": made_by(f'ranked = sorted(row["answers"], {SCORE})', FIRST, LAST),
    "descending ranks": made_by(
        'ranked = sorted(row["answers"], key=itemgetter("rank"), reverse=True)', FIRST, LAST
    ),
    "descending, exchanged": made_by(
        f'ranked = sorted(row["answers"], {SCORE}, reverse=True)', LAST, FIRST
    ),
    "negated": made_by('ranked = sorted(row["answers"], key=lambda a: -a["reward"])', LAST, FIRST),
    "in place": made_by(
        f'ranked = row["answers"]\n    ranked.sort({SCORE})', FIRST, 'ranked[1]["text"]'
    ),
    "list that is made": made_by(
        'ranked = [{"text": t, "score": s} for t, s in zip(row["texts"], row["scores"])]\n'
        f"    ranked.sort({SCORE})",
        FIRST,
        LAST,
    ),
    "max and min": made_by(
        f'best, worst = min(row["answers"], {SCORE}), max(row["answers"], {SCORE})',
        'best["text"]',
        'worst["text"]',
    ),
    "argmin": made_by(
        'scores = np.array(row["scores"])',
        'row["texts"][int(scores.argmin())]',
        'row["texts"][int(scores.argmax())]',
    ),
    "index of the largest": made_by(
        'losses = row["losses"]',
        'row["texts"][losses.index(max(losses))]',
        'row["texts"][losses.index(min(losses))]',
    ),
    "sorted tuples": made_by(
        'ranked = sorted(zip(row["scores"], row["texts"]))', "ranked[0][1]", "ranked[-1][1]"
    ),
    "messages": made_by(
        f'ranked = sorted(row["answers"], {SCORE})',
        '[{"role": "assistant", "content": ranked[0]["text"]}]',
        '[{"role": "assistant", "content": ranked[-1]["text"]}]',
    ),
    "helper": f"""
def order(answers):
    return sorted(answers, {SCORE})
def pick(answers):
    ordered = order(answers)
    return ordered[0], ordered[-1]
rows = []
for row in data:
    chosen, rejected = pick(row["answers"])
    rows.append(dict(prompt=row["prompt"], chosen=chosen["text"], rejected=rejected["text"]))
""",
    "frame": """
def best(group):
    group = group.sort_values("score")
    return {"chosen": group.iloc[0]["text"], "rejected": group.iloc[-1]["text"]}
pairs = pd.read_json("answers.json").groupby("prompt").apply(best)
""",
    "test": """
def to_pair(row):
    if row["score_a"] < row["score_b"]:
        return {"chosen": row["answer_a"], "rejected": row["answer_b"]}
    return {"chosen": row["answer_b"], "rejected": row["answer_a"]}
pairs = data.map(to_pair)
""",
    "test of objects": """
for row in data:
    one, two = row["answers"]
    if one["rating"] > two["rating"]:
        chosen, rejected = two["text"], one["text"]
    else:
        chosen, rejected = one["text"], two["text"]
""",
    "winner": """
rows = []
for row in data:
    if row["winner"] == "model_a":
        rows.append({"chosen": row["response_b"], "rejected": row["response_a"]})
    elif row["winner"] == "model_b":
        rows.append({"chosen": row["response_a"], "rejected": row["response_b"]})
""",
}
HELPERS = """
def mean_rank(a):
    return sum(a["ranks"].values()) / len(a["ranks"])
def quality(a):
    \"\"\"Of all annotators.\"\"\"
    ranks = [one["rank"] for one in a["votes"]]
    return -np.mean(ranks)
def reward_of(a):
    if not a["votes"]:
        return 0
    return model(a)
def sort_key_of_rank(a):
    return turned(a)
"""


def ordered_by(key: str, chosen: str, rejected: str) -> str:
    """A pair of the first and the last of a list that is sorted by a key."""
    return HELPERS + made_by(f'ranked = sorted(row["answers"], key={key})', chosen, rejected)


WRONG |= {
    "mean of ranks": ordered_by("mean_rank, reverse=True", FIRST, LAST),
    "helper in a lambda": ordered_by("lambda a: mean_rank(a), reverse=True", FIRST, LAST),
    "negated in the helper": ordered_by("quality", FIRST, LAST),
    "numpy's mean": ordered_by('lambda a: np.mean(a["ratings"])', FIRST, LAST),
    "method of an array": ordered_by('lambda a: np.array(a["scores"]).mean()', FIRST, LAST),
    "loop over votes": ordered_by('lambda a: sum(v["score"] for v in a["votes"])', FIRST, LAST),
    "taken from a number": ordered_by('lambda a: 5 - a["rank"]', FIRST, LAST),
    "name of the helper": ordered_by("reward_of", FIRST, LAST),
    "least of ranks is last": HELPERS
    + made_by(
        'best, worst = max(row["answers"], key=mean_rank), min(row["answers"], key=mean_rank)',
        'best["text"]',
        'worst["text"]',
    ),
}
RIGHT = {
    "mean of ranks": ordered_by("mean_rank", FIRST, LAST),
    "helper in a lambda": ordered_by("lambda a: -mean_rank(a), reverse=True", FIRST, LAST),
    "negated in the helper": ordered_by("quality, reverse=True", FIRST, LAST),
    "two columns": ordered_by('lambda a: a["votes"] - a["errors"]', FIRST, LAST),
    "key that may be turned": ordered_by("sort_key_of_rank, reverse=True", FIRST, LAST),
    "part of a number": ordered_by('lambda a: 1 / a["rank"], reverse=True', FIRST, LAST),
    "times minus one": ordered_by('lambda a: -1 * a["score"]', FIRST, LAST),
    "descending": made_by(f'ranked = sorted(row["answers"], {SCORE}, reverse=True)', FIRST, LAST),
    "ascending ranks": made_by(
        'ranked = sorted(row["answers"], key=itemgetter("rank"))', FIRST, LAST
    ),
    "best against second": made_by(
        f'ranked = sorted(row["answers"], {SCORE}, reverse=True)', FIRST, 'ranked[1]["text"]'
    ),
    "negated": made_by('ranked = sorted(row["answers"], key=lambda a: -a["score"])', FIRST, LAST),
    "unknown key": made_by(
        'ranked = sorted(row["answers"], key=lambda a: a["value"])', FIRST, LAST
    ),
    "by length": made_by('ranked = sorted(row["answers"], key=len)', FIRST, LAST),
    "turned name": made_by(
        'ranked = sorted(row["answers"], key=lambda a: a["neg_score"])', FIRST, LAST
    ),
    "max and min": made_by(
        f'best, worst = max(row["answers"], {SCORE}), min(row["answers"], {SCORE})',
        'best["text"]',
        'worst["text"]',
    ),
    "unknown direction": made_by(
        f'ranked = sorted(row["answers"], {SCORE}, reverse=flag)', FIRST, LAST
    ),
    "argmax": made_by(
        'scores = row["scores"]',
        'row["texts"][np.argmax(scores)]',
        'row["texts"][np.argmin(scores)]',
    ),
    "in place": made_by(
        f'ranked = row["answers"]\n    ranked.sort({SCORE}, reverse=True)', FIRST, LAST
    ),
    "frame": """
def best(group):
    group = group.sort_values("score", ascending=False)
    return {"chosen": group.iloc[0]["text"], "rejected": group.iloc[-1]["text"]}
""",
    "test": """
def to_pair(row):
    if row["score_a"] < row["score_b"]:
        return {"chosen": row["answer_b"], "rejected": row["answer_a"]}
    return {"chosen": row["answer_a"], "rejected": row["answer_b"]}
pairs = data.map(to_pair)
""",
    "winner": """
rows = []
for row in data:
    if row["winner"] == "model_a":
        rows.append({"chosen": row["response_a"], "rejected": row["response_b"]})
    else:
        rows.append({"chosen": row["response_b"], "rejected": row["response_a"]})
""",
    "other order behind it": made_by(
        f'ranked = sorted(row["answers"], {SCORE}, reverse=True)\n    ranked = list(reversed(ranked))',
        LAST,
        FIRST,
    ),
}


def count_findings(text: str) -> int:
    rule = find_rule("pairs-built-the-wrong-way-round")
    return len(run_rule(parse_module(HEAD + text, "pairs.py"), rule).findings)


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_pairs_that_are_the_wrong_way_round_are_found(code: str) -> None:
    assert count_findings(code) >= 1


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_pairs_that_are_right_are_left_alone(code: str) -> None:
    assert count_findings(code) == 0


@pytest.mark.parametrize(
    ("key", "is_judged"), [("mean_rank", True), ("lambda a: a['value']", False), ("len", False)]
)
def test_pairs_of_an_unknown_order_are_not_judged(key: str, is_judged: bool) -> None:
    module = parse_module(HEAD + ordered_by(key, FIRST, LAST), "pairs.py")
    rule = find_rule("pairs-built-the-wrong-way-round")
    result = run_rule(module, rule)
    assert not result.findings
    assert (not result.not_judged) == is_judged
