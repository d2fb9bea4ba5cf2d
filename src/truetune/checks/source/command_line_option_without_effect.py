"""A command line option changes nothing: no code reads it, or every value given for it counts as true.

## What it does
Looks at the options that a script adds to its command line. It fires on `type=bool` whose default is True, or that a
shell script in the same folder tries to switch off. It also fires on options that set up a training (learning rate,
weight decay, seed, ...) and that neither the script nor a file that runs with it reads. Fields that `HfArgumentParser`
fills are options, too.

## Why it is bad
argparse calls `bool("False")`, which is True: the option can't be switched off. An option that is parsed but never read
appears in the run's log, in the name of its folder and in the paper, but all runs of a search over it are the same run.

## Example
```python
import argparse

import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--weight_decay", type=float, default=0.1)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
```

## Use instead
```python
import argparse

import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--weight_decay", type=float, default=0.1)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
```

## Fix safety
There is no automatic fix. Earlier runs were made without the option, whatever value they record for it.

## References
- gregorbachmann/Next-Token-Failures#5 (never read), lukecavabarrett/pna#7, ACEsuit/mace#429 (`type=bool`)
- https://docs.python.org/3/library/argparse.html#type
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.command_line_options_without_effect import (
    options_always_true,
    options_never_read,
    options_of_command_line,
)

MAX_NAMES = 4
"""Options that a message names"""


class CommandLineOptionWithoutEffect(SourceRule):
    code = "SRC465"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    looks_at = CodePlaces("options of the command line", options_of_command_line)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        always_true = [*options_always_true(module)]
        for option in always_true:
            if option.given:
                yield self.finding(
                    f"--{option.name} can't be switched off, which {option.given} tries: type=bool turns every"
                    ' non-empty text into True, "False" too',
                    f"replace type=bool by action=argparse.BooleanOptionalAction, and pass --no-{option.name} to"
                    " switch it off",
                    cases=[case_of_node(module, option.place)],
                    severity="error",
                )
        on_by_default = [option for option in always_true if not option.given]
        if on_by_default:
            names = ", ".join(f"--{option.name}" for option in on_by_default[:MAX_NAMES])
            yield self.finding(
                f'{names} can\'t be switched off: type=bool turns every non-empty text into True, "False" too',
                "replace type=bool by action=argparse.BooleanOptionalAction, and pass --no-NAME to switch it off",
                cases=[case_of_node(module, option.place) for option in on_by_default],
            )
        for option in options_never_read(module):
            yield self.finding(
                f"--{option.name} is parsed but never read: the run is the same whatever its value",
                f"pass args.{option.name} to the call that it is meant for, or remove the option",
                cases=[case_of_node(module, option.place)],
            )
