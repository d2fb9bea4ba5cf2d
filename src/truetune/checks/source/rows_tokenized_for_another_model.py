"""A model is trained on rows that another script tokenized with another family's tokenizer.

## What it does
Compares what a training script loads (`load_from_disk`, `load_dataset(data_files=...)`, `torch.load`, `numpy.memmap`)
with what other scripts of the project save under the same path. If that script makes token ids and the training script
does not, it compares the tokenizer of the first with the model of the second: both must be published models with known
vocabularies, and these must differ. Names are traced through constants, defaults of options and of environment
variables, and values in shell scripts. Models that share a vocabulary (a base and its chat model) are not reported.

## Why it is bad
Each id means a different piece of text to the model than to the tokenizer that wrote it. The loss starts near or above
that of random guessing, and stays far above the model's loss on normal text; no learning rate helps.

## Example
```python
# prep.py: import transformers as t; k = t.AutoTokenizer.from_pretrained("gpt2"); k.encode(a).save_to_disk("i")
from datasets import load_from_disk
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
trainer = Trainer(model=model, train_dataset=load_from_disk("i"))
```

## Use instead
```python
# prep.py: import transformers as t; k = t.AutoTokenizer.from_pretrained("Qwen/Qwen3-8B"); k.encode(a).save_to_disk("i")
from datasets import load_from_disk
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
trainer = Trainer(model=model, train_dataset=load_from_disk("i"))
```

## Fix safety
There is no automatic fix: tokenize the rows again with the model's tokenizer, and delete the old ones. Weights that
were trained on the old rows can't be used.

## References
- huggingface/datasets, `Dataset.save_to_disk` (it keeps ids, and not whose they are)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.token_ids_of_another_vocabulary import (
    ids_of_other_models,
    training_row_loads_with_paths,
    vocabulary_group_of,
)
from truetune.source.parsed_source_file import Module


def _row_loads_with_path(module: Module) -> Iterator[ast.AST]:
    """The calls that load rows from a path that is known."""
    return (call.node for call, _ in training_row_loads_with_paths(module))


class RowsTokenizedForAnotherModel(SourceRule):
    code = "SRC265"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    symptoms = ("loss-does-not-fall", "garbage-output", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("loads of saved rows in a training", _row_loads_with_path)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for ids_of_another_model in ids_of_other_models(module):
            yield self.finding(
                f"{ids_of_another_model.path} contains ids of {ids_of_another_model.tokenizer} (vocabulary of"
                f" {vocabulary_group_of(ids_of_another_model.tokenizer)}), but the model that is trained on them is"
                f" {ids_of_another_model.model}"
                f" ({vocabulary_group_of(ids_of_another_model.model)}): each id means another"
                " piece of text to it, and the loss starts near random guessing",
                f"delete {ids_of_another_model.path}, and tokenize the rows again with the model's tokenizer:"
                f' AutoTokenizer.from_pretrained("{ids_of_another_model.model}")',
                cases=[
                    case_of_node(module, ids_of_another_model.node),
                    case_of_node(ids_of_another_model.maker, ids_of_another_model.made_by),
                ],
            )
            return
