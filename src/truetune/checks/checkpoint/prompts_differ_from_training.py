"""The tokenizer or template makes other prompts than the model was trained on.

## What it does
Renders and encodes the conversations in contract.json, which truetune wrote when the training began, with the tokenizer
and template beside the weights (or else with those of the base), and compares text and ids. It also compares the
special and the stop tokens. If the prompts can't be rendered, that is a warning.

## Why it is bad
The model gets prompts in a form that it was not trained on. Answers get worse, or do not end, and no loss shows it.
Causes are an edited template, a tokenizer of another revision, or a library that saved it in another way.

## Example
```yaml
lora: [q_proj]
tokens: {}
files:
  contract.json:
    {format: 1, tokenizer: {}, templates: {}, template_kwargs: {}, clock: null, special: {}, stops: [],
     prompts: [{name: 1 turn, messages: [{role: user, content: "Where?"}], text: "User: Where?", ids: [5]}]}
```

## Use instead
```yaml
lora: [q_proj]
tokens: {}
files:
  contract.json:
    {format: 1, tokenizer: {}, templates: {}, template_kwargs: {}, clock: null, special: {}, stops: [],
     prompts: [{name: 1 turn, messages: [{role: user, content: "Where is the lighthouse?"}],
                text: "<|im_start|>user\\nWhere is the lighthouse?<|im_end|>\\n<|im_start|>assistant\\n",
                ids: [2, 297, 202, 1169, 300, 265, 449, 451, 369, 269, 367, 34, 3, 202, 2, 294, 202]}]}
```

## Fix safety
Put the tokenizer and template of the training back. If the change was intended, train with it.

## References
- hiyouga/LlamaFactory#7785, huggingface/transformers#42591, Lightning-AI/litgpt#1986
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_run_and_check_checkpoints import (
    CONTRACT_FILE,
    step_of_checkpoint_name,
)
from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.errors import TruetuneError
from truetune.render.serving_contract import verify

TOKENIZER = "tokenizer.json"


class PromptsDifferFromTraining(CheckpointRule):
    code = "CKP031"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "error"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        if self._read_contract() is None:
            return Unmet(
                "there is no contract.json of the training",
                "train with truetune train, which writes it",
            )
        if self._folder_of_served_tokenizer() is None:
            return Unmet(
                "there is no tokenizer to make the prompts with",
                "put tokenizer.json beside the weights",
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many recorded prompts come out the same."""
        prompts = (self._read_contract() or {}).get("prompts")
        count = len(prompts) if isinstance(prompts, list) else 0
        return f"{count:,} of {count:,} recorded prompts come out the same"

    def _read_contract(self) -> dict[str, Any] | None:
        """The content of contract.json, from the folder of the run above its numbered checkpoints;
        None if there is none.
        """
        folder = self.subject.folder
        run_folder = (
            folder.resolve().parent if step_of_checkpoint_name(folder) is not None else folder
        )
        return read_json_object(run_folder / CONTRACT_FILE, [])

    def _folder_of_served_tokenizer(self) -> Path | None:
        """The folder whose tokenizer is served: its own, else the base's; None where neither has one."""
        checkpoint, base = self.subject, self.subject.base
        if checkpoint.has_file(TOKENIZER):
            folder = checkpoint.folder
        elif base is not None:
            folder = base.folder
        else:
            return None
        return folder if (folder / TOKENIZER).is_file() else None

    def findings(self) -> Iterator[Finding]:
        contract, served = self._read_contract(), self._folder_of_served_tokenizer()
        if contract is None or served is None:
            return
        try:
            differences = verify(contract, served, model=self._folder_of_generation_config(served))
        # What stops the comparison (a template that raises) would stop serving too.
        except TruetuneError as error:
            yield self.finding(
                f"the prompts can't be compared: {error}",
                "correct the chat template or tokenizer that this error names",
                severity="warning",
            )
            return
        if differences:
            yield self.finding(
                f"{served.name} makes other prompts than in training: {differences[0]}",
                "copy the tokenizer and chat template of the training beside the weights, and serve"
                " with them",
                cases=[Case(text, file=CONTRACT_FILE) for text in differences],
                count=len(differences),
            )

    def _folder_of_generation_config(self, served: Path) -> Path:
        """The folder whose generation_config.json counts: an adapter's folder has none, and the base's holds."""
        base = self.subject.base
        files = ("generation_config.json", "config.json")
        has_own = any((served / name).is_file() for name in files)
        return served if has_own or base is None else base.folder
