"""Options of a script's command line that change something, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import read_module

HEAD = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
"""
READ = "optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)\n"
PARSED = "args = parser.parse_args()\n" + READ
SEED = 'parser.add_argument("--seed", type=int, default=42)\n'
LORA = 'parser.add_argument("--use_lora", type=bool, default=False)\nargs = parser.parse_args()\n'
FAULTY = {
    "never read": (SEED + PARSED, ""),
    "only written down": (SEED + PARSED + "print(vars(args))\n", ""),
    "a field that is never read": (
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass Settings:\n"
        "    model: str = 'a'\n    beta: float = 0.04\n"
        "(settings,) = HfArgumentParser(Settings).parse_args_into_dataclasses()\nrun(settings.model)\n",
        "",
    ),
    "on by default": (
        LORA.replace("False", "True") + READ + "print(args.use_lora)\n",
        "",
    ),
    "switched off in vain": (
        LORA + READ + "if args.use_lora:\n    wrap(model)\n",
        "python train.py --use_lora False\n",
    ),
}
RIGHT = {
    "read": (SEED + PARSED + "torch.manual_seed(args.seed)\n", ""),
    "given on as a whole": (SEED + PARSED + "run(**vars(args))\n", ""),
    "given to a function of another file": (SEED + PARSED + "main(args)\n", ""),
    "read by name": (SEED + PARSED + "torch.manual_seed(getattr(args, 'seed'))\n", ""),
    "fields of a class that a library reads": (
        "from transformers import HfArgumentParser\nfrom trl import GRPOConfig\nclass Settings(GRPOConfig):\n"
        "    beta: float = 0.04\n"
        "(settings,) = HfArgumentParser(Settings).parse_args_into_dataclasses()\nrun(settings.model)\n",
        "",
    ),
    "off by default and never given": (LORA + READ + "print(args.use_lora)\n", ""),
    "what a launcher gives": (
        'parser.add_argument("--local_rank", type=int, default=-1)\n' + PARSED,
        "",
    ),
    "no setting of a training": (
        'parser.add_argument("--run_name", default="a")\n' + PARSED,
        "",
    ),
}


def findings_of(case: tuple[str, str], folder: Path) -> list[str]:
    """The messages of the rule's findings in a script, beside the command that starts it."""
    script, command = case
    (folder / "train.py").write_text(HEAD + script)
    if command:
        (folder / "run.sh").write_text(command)
    module = read_module(folder / "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("command-line-option-without-effect")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_changes_nothing(case: str, tmp_path: Path) -> None:
    """The option is named, once."""
    assert len(findings_of(FAULTY[case], tmp_path)) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_changes_something(case: str, tmp_path: Path) -> None:
    """An option that may be read is right."""
    assert findings_of(RIGHT[case], tmp_path) == []
