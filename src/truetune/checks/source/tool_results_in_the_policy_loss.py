"""Results of tools are in the policy loss: the mask of sampled tokens has ones for text that the script wrote.

## What it does
Looks at loops over turns with a policy loss of their own, in which a mask grows by a value for each token. It fires if
the mask gets ones for the ids of a generation, and ones for ids that the tokenizer gave for the script's own text: what
a tool or an environment answered. Attention masks, and text of the model itself, are not reported.

## Why it is bad
The policy did not choose these tokens, but their log-probabilities are raised with each good answer. The model learns
to write results of tools itself instead of waiting for them, and long results outweigh what it said.

## Example
```python
import torch

for batch in batches:
    ids, trained = list(batch["prompt_ids"]), []
    for turn in range(4):
        new = policy.generate(torch.tensor([ids]), do_sample=True)[0, len(ids) :].tolist()
        ids += new
        trained += [1] * len(new)
        result = tokenizer.encode(run_tool(new), add_special_tokens=False)
        ids += result
        trained += [1] * len(result)
    logps = logps_of(policy, ids)
    loss = -(advantage_of(batch, ids) * logps * torch.tensor(trained)).sum()
    loss.backward()
```

## Use instead
```python
import torch

for batch in batches:
    ids, trained = list(batch["prompt_ids"]), []
    for turn in range(4):
        new = policy.generate(torch.tensor([ids]), do_sample=True)[0, len(ids) :].tolist()
        ids += new
        trained += [1] * len(new)
        result = tokenizer.encode(run_tool(new), add_special_tokens=False)
        ids += result
        trained += [0] * len(result)
    logps = logps_of(policy, ids)
    loss = -(advantage_of(batch, ids) * logps * torch.tensor(trained)).sum()
    loss.backward()
```

## Fix safety
There is no automatic fix: whether the mask is that of the loss is for you to see. Divide the loss by the sum of the
mask, too.

## References
- huggingface/trl#4974
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.masks_of_sampled_turns import (
    additions_to_masks,
    trained_tool_results,
)


class ToolResultsInThePolicyLoss(SourceRule):
    code = "SRC547"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    symptoms = ("agent-training", "nothing-is-learned")
    severity = "warning"
    looks_at = CodePlaces("masks that grow with turns", additions_to_masks)

    def findings(self) -> Iterator[Finding]:
        """Findings on ones for text that the model did not write."""
        for trained_tool_result in trained_tool_results(self.subject):
            ids = ast.unparse(trained_tool_result.ids)
            yield self.finding(
                f"{trained_tool_result.mask} gets ones for {ids}, which the tokenizer made of text that the model"
                " did not write, as it does for the sampled ids: results of tools are in the loss",
                f"add 0 to {trained_tool_result.mask} for each of {ids}, and 1 for sampled ids alone",
                cases=[
                    case_of_node(self.subject, trained_tool_result.added),
                    case_of_node(self.subject, trained_tool_result.encoding),
                ],
            )
