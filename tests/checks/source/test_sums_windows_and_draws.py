"""Means that are summed over processes, gaps between windows, draws from logits, words that pandas reads as missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

REDUCED = """
import torch
import torch.distributed as dist
def validate(model, loader):
    total = 0.0
    for batch in loader:
        total += model(**batch).loss
    loss = total / len(loader)
    {body}
    return loss.item()
"""
SUMMED = {
    "default": "dist.all_reduce(loss)",
    "named": "dist.all_reduce(loss, op=dist.ReduceOp.SUM)",
    "mean of a tensor": "m = total.mean()\n    dist.all_reduce(m)",
    "copied": "c = loss.detach().clone()\n    dist.all_reduce(c)",
    "in a list": "t = torch.tensor([loss])\n    dist.all_reduce(t)",
}
AVERAGED = {
    "average": "dist.all_reduce(loss, op=dist.ReduceOp.AVG)",
    "divided after": "dist.all_reduce(loss)\n    loss = loss / dist.get_world_size()",
    "divided in place": "dist.all_reduce(loss)\n    loss /= dist.get_world_size()",
    "divided before": "loss = loss / dist.get_world_size()\n    dist.all_reduce(loss)",
    "method": "dist.all_reduce(loss)\n    loss.div_(dist.get_world_size())",
    "largest": "dist.all_reduce(loss, op=dist.ReduceOp.MAX)",
    "count": "n = torch.tensor(len(loader))\n    dist.all_reduce(n)",
    "count of all": "n = torch.tensor(len(loader))\n    dist.all_reduce(n)\n    loss = total / n\n"
    "    dist.all_reduce(loss)",
    "asked for zero": "bad = torch.isnan(loss).float().mean()\n    dist.all_reduce(bad)\n"
    "    if bad > 0:\n        raise ValueError",
}
ACCELERATED = """
from accelerate import Accelerator
accelerator = Accelerator()
for batch in loader:
    loss = model(**batch).loss.detach()
    {body}
"""
WINDOWS = """
def cut(ids, length, stride):
    rows = []
    for i in range(0, len(ids), stride):
        rows.append(ids[i : i + length])
    return rows
cut(tokenizer.encode(text), {length}, {stride})
"""
DRAWS = """
import torch
import torch.nn.functional as F
logits = model(ids).logits[:, -1]
{body}
"""
WRONG = {
    "temperature": "p = F.softmax(logits * temperature, -1)\ntoken = torch.multinomial(p, 1)",
    "temperature in place": "logits *= args.temperature\ntoken = torch.multinomial(logits.softmax(-1), 1)",
    "temperature on a part": "p = F.softmax(temperature * out.logits[:, -1].float(), -1)\n"
    "token = torch.multinomial(p, 1)",
    "logits": "token = torch.multinomial(logits, 1)",
    "largest logits": "v, i = torch.topk(logits, 50)\ntoken = i.gather(-1, torch.multinomial(v, 1))",
}
RIGHT = {
    "divided": "p = F.softmax(logits / temperature, -1)\ntoken = torch.multinomial(p, 1)",
    "exponential": "token = torch.multinomial((logits / 0.8).exp(), 1)",
    "own function": "token = torch.multinomial(probabilities(logits), 1)",
    "loss of a teacher": "loss = F.kl_div(F.log_softmax(logits / temperature, -1), q) * temperature * temperature\n"
    "token = torch.multinomial(F.softmax(logits / temperature, -1), 1)",
    "entropy": "bonus = temperature * entropy_of(logits)\ntoken = torch.multinomial(logits.softmax(-1), 1)",
    "other factor": "p = F.softmax(logits * scale, -1)\ntoken = torch.multinomial(p, 1)",
}


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", SUMMED)
def test_a_mean_that_is_summed_is_reported(way: str) -> None:
    assert count("sum-over-processes-not-divided", REDUCED.format(body=SUMMED[way])) == 1


@pytest.mark.parametrize("way", AVERAGED)
def test_a_mean_of_processes_is_fine(way: str) -> None:
    assert count("sum-over-processes-not-divided", REDUCED.format(body=AVERAGED[way])) == 0


@pytest.mark.parametrize(
    ("body", "findings"),
    [
        ("print(accelerator.reduce(loss).item())", 1),
        ("print(accelerator.reduce(loss, reduction='sum').item())", 1),
        ("print(accelerator.reduce(loss, reduction='mean').item())", 0),
        ("print(accelerator.reduce(loss) / accelerator.num_processes)", 0),
        ("n = accelerator.gather(batch['n']).sum()\n    print(accelerator.reduce(loss / n))", 0),
    ],
)
def test_what_accelerate_reduces_is_followed(body: str, findings: int) -> None:
    assert count("sum-over-processes-not-divided", ACCELERATED.format(body=body)) == findings


@pytest.mark.parametrize(
    ("length", "stride", "findings"),
    [(256, 512, 1), (256, 2048, 1), (256, 4096, 0), (256, 256, 0), (256, 257, 0), (256, 128, 0)],
)
def test_windows_are_compared_with_their_stride(length: int, stride: int, findings: int) -> None:
    text = WINDOWS.format(length=length, stride=stride)
    assert count("tokens-between-windows-skipped", text) == findings


@pytest.mark.parametrize(
    ("rest", "findings"),
    [
        ("ids[i + 256 : i + 512]", 0),
        ("ids[i + 300]", 0),
        ("ids[i + 1 : i + 257]", 1),
        ("ids[i + 256]", 1),
        ("other[i + 300]", 1),
    ],
)
def test_other_parts_of_a_record_are_read_too(rest: str, findings: int) -> None:
    text = WINDOWS.format(length=256, stride=512)
    read = text.replace("rows.append(", f"held.append({rest})\n        rows.append(")
    assert count("tokens-between-windows-skipped", read) == findings


@pytest.mark.parametrize("way", WRONG)
def test_a_draw_from_something_else_is_reported(way: str) -> None:
    assert count("own-sampling-distorts-answers", DRAWS.format(body=WRONG[way])) == 1


@pytest.mark.parametrize("way", RIGHT)
def test_a_draw_from_probabilities_is_fine(way: str) -> None:
    assert count("own-sampling-distorts-answers", DRAWS.format(body=RIGHT[way])) == 0


@pytest.mark.parametrize(
    ("call", "cell", "findings"),
    [
        ("pd.read_csv('codes.csv')", "NA", 1),
        ("pd.read_csv('codes.csv').dropna()", "None", 1),
        ("pd.read_csv('codes.csv', keep_default_na=False)", "NA", 0),
        ("pd.read_csv('codes.csv', na_filter=False)", "NA", 0),
        ("pd.read_csv('codes.csv')", "NO", 0),
        ("pd.read_csv('codes.csv')", "", 0),
        ("pd.read_csv('other.csv')", "NA", 0),
        ("pd.read_csv('codes.csv', usecols=['prompt'])", "NA", 0),
        ("pd.read_csv('codes.csv', usecols=['completion'])", "NA", 1),
        ("pd.read_csv('codes.csv', converters={'completion': str})", "NA", 0),
        ("pd.read_csv('codes.csv', na_values=['NA'])", "NA", 0),
        ("pd.read_csv('codes.csv').fillna('None')", "None", 0),
        ("pd.read_csv('codes.csv').fillna('')", "None", 1),
    ],
)
def test_words_of_a_table_are_read(call: str, cell: str, findings: int, tmp_path: Path) -> None:
    rows = [f"Which code has {n}?,{cell if n == 3 else f'C{n}'}" for n in range(10)]
    (tmp_path / "codes.csv").write_text("\n".join(["prompt,completion", *rows]), encoding="utf-8")
    script = tmp_path / "prepare.py"
    script.write_text(f"import pandas as pd\ndf = {call}\ndf.to_json('train.jsonl')\n")
    found = lint([str(script)], select=("words-read-as-missing",)).findings
    assert len(found) == findings


def test_a_missing_number_is_no_word(tmp_path: Path) -> None:
    rows = [f"text {n},{'NA' if n == 3 else n % 3}" for n in range(10)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    script = tmp_path / "prepare.py"
    script.write_text("import pandas as pd\ndf = pd.read_csv('rows.csv')\n")
    assert not lint([str(script)], select=("words-read-as-missing",)).findings
