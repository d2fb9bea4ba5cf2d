"""Two files of one set of rows, of which a script filters or sorts one alone before it joins them by position."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.lint import lint

RULE = "rows-joined-after-one-side-changed"
READ = """
import json
import pandas as pd
from datasets import Dataset
tickets = pd.read_csv("tickets.csv")
replies = pd.read_csv("replies.csv")
"""
WRONG = {
    "concat": """
tickets = tickets.drop_duplicates(subset="body").reset_index(drop=True)
pairs = pd.concat([tickets[["body"]], replies[["reply"]]], axis=1)
""",
    "numbered by the filter": """
tickets = tickets.drop_duplicates("body", ignore_index=True)
pairs = pd.concat([tickets, replies], axis="columns")
""",
    "in place": """
tickets.drop_duplicates(subset="body", inplace=True)
tickets.reset_index(drop=True, inplace=True)
pairs = pd.concat([tickets, replies], axis=1)
""",
    "a column of plain values": """
tickets = tickets.sort_values("body")
tickets["reply"] = replies["reply"].values
""",
    "zip": """
tickets = tickets.dropna(subset=["body"])
rows = [{"prompt": a, "completion": b} for a, b in zip(tickets["body"], replies["reply"])]
""",
    "a sample": """
tickets = tickets.sample(frac=1, random_state=1).reset_index(drop=True)
pairs = pd.concat([tickets, replies], axis=1)
""",
    "a frame of two columns": """
tickets = tickets.drop_duplicates(subset="body").reset_index(drop=True)
pairs = pd.DataFrame({"body": tickets["body"], "reply": replies["reply"]})
""",
    "a column of a data set": """
rows = Dataset.from_pandas(tickets.sort_values("body"))
rows = rows.add_column("reply", replies["reply"].tolist())
""",
}
RIGHT = {
    "joined by the key": """
tickets = tickets.drop_duplicates(subset="body").reset_index(drop=True)
pairs = tickets.merge(replies, on="ticket_id")
""",
    "joined by the index": """
tickets = tickets.drop_duplicates(subset="body")
pairs = pd.concat([tickets, replies], axis=1).dropna()
""",
    "both filtered to the same rows": """
tickets = tickets.drop_duplicates(subset="body").reset_index(drop=True)
replies = replies[replies.ticket_id.isin(tickets.ticket_id)].reset_index(drop=True)
pairs = pd.concat([tickets, replies], axis=1)
""",
    "the key as the index": """
tickets = tickets.drop_duplicates(subset="body").set_index("ticket_id")
pairs = pd.concat([tickets, replies.set_index("ticket_id")], axis=1)
""",
    "nothing is left out": """
tickets = tickets.drop_duplicates(subset="ticket_id").reset_index(drop=True)
pairs = pd.concat([tickets, replies], axis=1)
""",
    "whole rows are filtered": """
pairs = pd.concat([tickets, replies], axis=1)
pairs = pairs.drop_duplicates(subset="body").reset_index(drop=True)
""",
}


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows as a CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def severities(folder: Path, code: str, *, with_ids: bool = True) -> list[str]:
    """What is said of a script beside its two files."""
    ids = [{"ticket_id": 700 + n} if with_ids else {} for n in range(40)]
    tickets = [
        {**one, "body": "same" if n % 7 == 0 else f"q{n}" if n != 9 else ""}
        for n, one in enumerate(ids)
    ]
    replies = [{**one, "reply": f"a{n}"} for n, one in enumerate(ids)]
    write_table(folder / "tickets.csv", tickets)
    write_table(folder / "replies.csv", replies)
    (folder / "pairs.py").write_text(READ + code, encoding="utf-8")
    return [one.severity for one in lint([str(folder)], select=[RULE]).findings]


@pytest.mark.parametrize("form", WRONG)
def test_one_side_is_changed_alone(form: str, tmp_path: Path) -> None:
    assert severities(tmp_path, WRONG[form]) == ["error"]


@pytest.mark.parametrize("form", RIGHT)
def test_rows_stay_together(form: str, tmp_path: Path) -> None:
    assert severities(tmp_path, RIGHT[form]) == []


def test_without_ids_it_is_a_warning(tmp_path: Path) -> None:
    """Then only the numbers of rows say that the files belong together."""
    assert severities(tmp_path, WRONG["concat"], with_ids=False) == ["warning"]


def test_a_notebook(tmp_path: Path) -> None:
    severities(tmp_path, "")
    (tmp_path / "pairs.py").unlink()
    cell: dict[str, Any] = {
        "cell_type": "code",
        "source": READ + WRONG["concat"],
        "outputs": [],
        "metadata": {},
        "execution_count": None,
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "pairs.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    (found,) = lint([str(tmp_path)], select=[RULE]).findings
    assert "`ticket_id`" in found.evidence[0]
