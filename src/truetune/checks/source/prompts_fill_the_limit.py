"""A loop cuts rows from the right, and long prompts fill the limit: no label is left, and the batch's loss is NaN.

## What it does
Traces the code that turns local rows into token ids, up to the loader of a loop. It assumes six characters per token,
which is more than any tokenizer averages on running text. It fires if rows are certainly cut so that every label is
-100, and if batches consist only of such rows. It does not fire if the script checks the labels or the loss
(`isfinite`, `labels != -100`), or averages in another way. A loss that a script divides by the sum of its mask (`(loss
* mask).sum() / mask.sum()`) counts if nothing keeps the divisor above zero; so do the loaders of Lightning's data
modules. With a tokenizer, `answers-masked-in-token-rows` counts the rows exactly.

## Why it is bad
The mean over zero labels is 0 / 0. The optimizer step with that gradient makes every weight NaN, some steps into the
run. A lower learning rate or another precision does not help.

## Example
```python
# rows.jsonl: {"rows": 40, "words": 10, "long": 4, "long_words": 200}
import json
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("org/model")
model = AutoModelForCausalLM.from_pretrained("org/model")


def encode(row):
    prompt, answer = tok(row["text"])["input_ids"], tok("That is all.")["input_ids"]
    return {"input_ids": (prompt + answer)[:64], "labels": ([-100] * len(prompt) + answer)[:64]}


rows = [encode(json.loads(line)) for line in open("rows.jsonl")]
for batch in DataLoader(rows, batch_size=1):
    model(**batch).loss.backward()
```

## Use instead
```python
# rows.jsonl: {"rows": 40, "words": 10, "long": 4, "long_words": 200}
import json
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

tok = AutoTokenizer.from_pretrained("org/model")
model = AutoModelForCausalLM.from_pretrained("org/model")


def encode(row):
    prompt, answer = tok(row["text"])["input_ids"], tok("That is all.")["input_ids"]
    prompt = prompt[: 64 - len(answer)]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


rows = [encode(json.loads(line)) for line in open("rows.jsonl")]
for batch in DataLoader(rows, batch_size=1):
    model(**batch).loss.backward()
```

## Fix safety
There is no automatic fix. You can shorten the prompts, raise the limit or drop these rows; each trains on different
tokens.

## References
- pytorch/pytorch#70348; PyTorch documentation, `CrossEntropyLoss` (`ignore_index`, `reduction="mean"`)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.script_token_ids_by_stand_in_tokenizer import (
    find_rows_cut_by_script,
)
from truetune.checks.effect_of_batches_without_label import (
    EFFECT,
    GUARD_THE_DIVISION,
    REMEDY,
    describe_loss_of_unlabelled_batches,
    divides_by_sum_of_mask,
    expects_batch_without_label,
    may_guard_mask_division,
    may_skip_unlabelled_batches,
)
from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.data.row_text_bytes import MOST_CHARACTERS_PER_TOKEN
from truetune.data.script_rows.read_rows_given_to_trainer import LIGHTNING_TRAINERS
from truetune.source.parsed_source_file import Module


def _loaders_of_training(module: Module) -> Iterator[ast.AST]:
    """The loaders of a file that computes gradients itself, and what gives rows to Lightning's Trainer."""
    if not any(
        _hides_labels_or_divides_loss_by_mask(part) for part in module.self_and_files_run_together
    ):
        return
    if any(True for _ in module.methods("backward")):
        for call in module.calls("torch.utils.data.*DataLoader"):
            yield call.node
    if any(True for _ in module.calls(*LIGHTNING_TRAINERS)):
        for fit in module.methods("fit"):
            yield fit.node


def _hides_labels_or_divides_loss_by_mask(module: Module) -> bool:
    """Does a file hide labels by -100, or divide a loss by the sum of its mask?"""
    return module.mentions("-100", "- 100") or divides_by_sum_of_mask(module)


def _may_handle_empty_batches(module: Module) -> bool:
    """May the run leave such batches out, or average otherwise?"""
    parts = module.self_and_files_run_together
    if any(map(divides_by_sum_of_mask, parts)):
        return may_guard_mask_division(part.text for part in parts)
    return may_skip_unlabelled_batches(part.text for part in parts)


class PromptsFillTheLimit(SourceRule):
    code = "SRC421"
    fault = Fault.ROWS_WITHOUT_ANY_LABEL
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "garbage-output")
    severity = "error"
    looks_at = CodePlaces("loaders of loops that mask labels themselves", _loaders_of_training)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        loader = next(_loaders_of_training(module), None)
        if loader is None or _may_handle_empty_batches(module):
            return
        cut = find_rows_cut_by_script(str(Path(module.path)), MOST_CHARACTERS_PER_TOKEN)
        if cut is None or not expects_batch_without_label(
            cut.rows, cut.without_label, cut.rows_at_once
        ):
            return
        yield self.finding(
            f"at least {cut.without_label:,} of {cut.rows:,} rows have no label: their prompts are already longer than"
            f" the {cut.limit:,} tokens that the script keeps, so the answer is cut off;"
            f" {describe_loss_of_unlabelled_batches(cut.rows_at_once)}",
            f"{REMEDY}; {GUARD_THE_DIVISION}"
            if any(map(divides_by_sum_of_mask, module.self_and_files_run_together))
            else REMEDY,
            evidence=[
                EFFECT,
                f"estimated from characters (at most {MOST_CHARACTERS_PER_TOKEN} per token); run with -t TOKENIZER to"
                " count tokens",
            ],
            cases=[
                Case("the first row that is cut", file=cut.file, line=cut.line),
                case_of_node(module, loader),
            ],
        )
