"""The Kullback-Leibler loss of a student is averaged over the vocabulary as well, which makes it almost zero.

## What it does
Inspects `kl_div` and `KLDivLoss` with `reduction="mean"`, which is their default, in a script that loads a causal or
sequence-to-sequence model. Not reported: a loss that is multiplied by the vocabulary size, and a script with a
classifier, which has few classes.

## Why it is bad
"mean" divides by the number of all elements: rows, positions and the 32,000 to 260,000 entries of the vocabulary. The
loss is around 1e-6, its gradients vanish next to Adam's epsilon and the weight decay, and a cross-entropy that it is
added to outweighs it. The student does not change.

## Example
```python
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("small")
teacher = AutoModelForCausalLM.from_pretrained("large")
for batch in batches:
    given = F.log_softmax(student(**batch).logits, dim=-1)
    wanted = F.softmax(teacher(**batch).logits, dim=-1)
    F.kl_div(given, wanted).backward()
```

## Use instead
```python
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("small")
teacher = AutoModelForCausalLM.from_pretrained("large")
for batch in batches:
    given = F.log_softmax(student(**batch).logits, dim=-1)
    wanted = F.softmax(teacher(**batch).logits, dim=-1)
    F.kl_div(given.flatten(0, 1), wanted.flatten(0, 1), reduction="batchmean").backward()
```

## Fix safety
The loss grows by a factor of the vocabulary size, so a tuned weight of this loss has to be tuned again. "batchmean"
divides only by the first dimension, so flatten the positions into it first.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.KLDivLoss.html ("mean" does not return the true divergence)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

FUNCTIONS, CLASSES = ("torch.nn.functional.kl_div",), ("torch.nn.KLDivLoss",)
LANGUAGE_MODELS = (
    "transformers.*ForCausalLM.from_pretrained",
    "transformers.*LMHeadModel.from_pretrained",
    "transformers.*ForSeq2SeqLM.from_pretrained",
    "transformers.*ForConditionalGeneration.from_pretrained",
    "unsloth.Fast*Model.from_pretrained",
)
MAX_FACTOR = 60
"""Characters of a factor in which a size is searched. Chosen, not measured: half a line"""
FEW_CLASSES = re.compile(r"ForSequenceClassification|ForTokenClassification|num_labels")
SIZES = re.compile(r"vocab|\bV\b|\.size\(|\.shape\b|numel\(", re.I)
"""What a product holds that makes up for the mean"""


def _divergences_beside_language_model(module: Module) -> Iterator[Call]:
    """Divergences that are computed or made beside a language model."""
    loads_model = any(
        any(part.calls(*LANGUAGE_MODELS)) for part in module.self_and_files_run_together
    )
    if loads_model and not FEW_CLASSES.search(module.text):
        yield from module.calls(*FUNCTIONS, *CLASSES)


class DivergenceAveragedOverTheVocabulary(SourceRule):
    code = "SRC288"
    fault = Fault.LOSS_COMPUTED_FROM_WRONG_VALUES
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    looks_at = CodePlaces("divergences of language models", _divergences_beside_language_model)

    def findings(self) -> Iterator[Finding]:
        """Findings on Kullback-Leibler losses that are averaged over the vocabulary, too."""
        module = self.subject
        for call in _divergences_beside_language_model(module):
            is_default = _is_mean_reduction_by_default(module, call)
            if is_default is None or _is_result_rescaled(module, call):
                continue
            mean = "no reduction is given, which is 'mean'" if is_default else "reduction is 'mean'"
            yield self.finding(
                f"{mean}: the divergence is divided by the size of the vocabulary as well (32,000 to 260,000), and is"
                " almost zero",
                'set reduction="batchmean", and flatten the positions of both arguments into the first dimension:'
                " x.flatten(0, 1)",
                cases=[case_of_node(module, call.node)],
            )


def _is_mean_reduction_by_default(module: Module, call: Call) -> bool | None:
    """True for a mean by default, False for a mean that is given; None where it is another
    reduction, or not known.
    """
    place = 4 if call.named(*FUNCTIONS) else 2
    old = ("size_average", "reduce")
    if call.open or any(name in call.keywords for name in old):
        return None
    reduction_argument = call.argument(place, "reduction")
    if reduction_argument is None:
        return True
    return False if module.flow.value(reduction_argument) == "mean" else None


def _is_result_rescaled(module: Module, call: Call) -> bool:
    """Is the result, of this call or of those of the loss that it makes, multiplied by a size?"""
    nodes: list[ast.AST] = [call.node]
    if call.named(*CLASSES):
        nodes += [
            one
            for one in module.nodes(ast.Call)
            if any(origin.node is call.node for origin in module.flow.origins(one.func))
        ]
    return any(_is_multiplied_by_size(module, node) for node in nodes)


def _is_multiplied_by_size(module: Module, node: ast.AST) -> bool:
    """Does a product around an expression, in its own statement or in a later one on its name, hold a size?"""
    for parent in module.parents(node):
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
            other = parent.left if node in ast.walk(parent.right) else parent.right
            if SIZES.search(ast.unparse(other)):
                return True
    statement = module.statement(node)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    name = re.escape(statement.targets[0].id)
    factor = f".{{1,{MAX_FACTOR}}}"
    products = re.compile(rf"\b{name}\s*\*=?\s*{factor}|{factor}\*\s*{name}\b")
    return any(SIZES.search(match[0]) for match in products.finditer(module.text))
