"""How many rules of source code find the example of their page in other forms that mean the same.

python -m bench.forms                     the table of the ten forms, and what is lost in each
python -m bench.forms --chain class,unpacked --chain dataclass,helpers   forms given one after the other
python -m bench.forms --every 10          each tenth rule alone
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.forms.measure import Outcome, outcomes
from bench.forms.transforms import FORMS
from truetune.checks.rule_catalogue import all_rules


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and below it the rules that are lost or speak without the fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chain", action="append", default=[], metavar="FORM,FORM")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    options = parser.parse_args(arguments)
    chains = [tuple(chain.split(",")) for chain in options.chain] or [(name,) for name in FORMS]
    measured = list(outcomes(all_rules("source")[:: options.every], chains))
    print("| form | found | share | excused | false alarms |")
    print("|---|---:|---:|---:|---:|")
    for chain in chains:
        print(_table_row([one for one in measured if one.forms == chain], chain))
    for chain in chains:
        for one in measured:
            if one.forms == chain and (is_lost(one) or one.false_alarm):
                print(" then ".join(chain), "lost" if is_lost(one) else "false alarm", one.rule)


def is_lost(one: Outcome) -> bool:
    """Is the fault not found, without a reason?"""
    return one.finds is False and one.excused is None


def _table_row(measured: Sequence[Outcome], chain: tuple[str, ...]) -> str:
    found = sum(one.finds is True for one in measured)
    lost = sum(is_lost(one) for one in measured)
    excused = sum(one.finds is False for one in measured) - lost
    alarms = sum(one.false_alarm is True for one in measured)
    share = found / (found + lost) if found + lost else 1.0
    return f"| {', then '.join(chain)} | {found} of {found + lost} | {share:.0%} | {excused} | {alarms} |"


if __name__ == "__main__":
    main()
