"""A chat model is evaluated without its chat template.

## What it does
Looks for `lm_eval.simple_evaluate` with a model whose name says chat or instruct, and no `apply_chat_template=True`.

## Why it is bad
The harness writes plain prompts by default. A tuned chat model then loses several points, and the base seems to win.

## Example
```python
import lm_eval

lm_eval.simple_evaluate(model="hf", model_args="pretrained=out/llama-3.1-8b-instruct-tuned", tasks=["gsm8k"])
```

## Use instead
```python
import lm_eval

lm_eval.simple_evaluate(
    model="hf",
    model_args="pretrained=out/llama-3.1-8b-instruct-tuned",
    tasks=["gsm8k"],
    apply_chat_template=True,
    fewshot_as_multiturn=True,
)
```

## Fix safety
The figures change, and can't be compared with those made without the template.

## References
- EleutherAI/lm-evaluation-harness#1841, EleutherAI/lm-evaluation-harness#2883
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import calls_of
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at, fix_of_changes
from truetune.source.source_edits import set_keyword

CHAT_MODEL_NAME = re.compile(r"instruct|[-_/]chat|[-_]it\b", re.I)


HARNESS_CALLS = ("lm_eval.simple_evaluate", "lm_eval.evaluator.simple_evaluate")


class EvalWithoutChatTemplate(SourceRule):
    code = "SRC065"
    severity = "warning"
    since = "0.1.0"
    looks_at = calls_of("calls of simple_evaluate", *HARNESS_CALLS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls(*HARNESS_CALLS):
            named = module.flow.value(call.argument(1, "model_args"))
            name = named.get("pretrained") if isinstance(named, dict) else named
            if (
                isinstance(name, str)
                and CHAT_MODEL_NAME.search(name)
                and call.lacks("apply_chat_template")
            ):
                yield self.finding(
                    "a chat model is evaluated without its chat template",
                    "give apply_chat_template=True (and fewshot_as_multiturn=True with few-shot"
                    " examples)",
                    cases=[case_at(module, call.node)],
                    fix=fix_of_changes(
                        module, set_keyword(module, call, "apply_chat_template", "True"), safe=False
                    ),
                )
