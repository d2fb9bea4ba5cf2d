"""LLaMA-Factory's stage pt masks every EOS in the loss, because EOS is also the pad token.

## What it does
For LLaMA-Factory's `stage: pt`, compares the tokenizer's pad token with its EOS. Without a pad token, LLaMA-Factory
uses the EOS.

## Why it is bad
That stage uses transformers' `DataCollatorForLanguageModeling`, which sets every label equal to the pad id to -100. The
model never learns where a document ends and continues without end. (The other stages mask padding by position.)

## Example
```yaml
files:
  model/tokenizer_config.json: {eos_token: </s>, pad_token: </s>}
config:
  model_name_or_path: model
  stage: pt
  do_train: true
  dataset: texts
  finetuning_type: lora
```

## Use instead
```yaml
files:
  model/tokenizer_config.json: {eos_token: </s>, pad_token: <unk>}
config:
  model_name_or_path: model
  stage: pt
  do_train: true
  dataset: texts
  finetuning_type: lora
```

## Fix safety
Safe: the model never reads pad tokens. Set `pad_token` in tokenizer_config.json to a token that never ends a document.

## References
- huggingface/transformers#23530, huggingface/transformers#22794, LLaMA-Factory 0.9.5 `train/pt/workflow.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.config.evidence.facts_from_model_folder import local_model_folder
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_TOKENIZER
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.errors import TokenizerError
from truetune.render.find_tokenizer_folder import read_json


class PadMasksEosInPretraining(ConfigRule):
    code = "CFG029"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    symptoms = ("never-stops",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    stacks = ("llama-factory",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet for other stages, or without the tokenizer.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if self.subject.raw.get("stage") != "pt":
            return Unmet("it is about LLaMA-Factory's stage pt")
        return NO_TOKENIZER if self._eos_and_pad()[0] is None else None

    def measurement_if_clean(self) -> str:
        """What was measured: the EOS and the pad token."""
        eos, pad = self._eos_and_pad()
        return f"the EOS is {eos}, the pad token {pad}"

    def _eos_and_pad(self) -> tuple[str | None, str | None]:
        """EOS and pad of the tokenizer; None where they, or it, are not here."""
        where = local_model_folder(self.subject)
        try:
            tokenizer_config = read_json(where / "tokenizer_config.json") if where else None
        except TokenizerError:
            return None, None
        return _token_text((tokenizer_config or {}).get("eos_token")), _token_text(
            (tokenizer_config or {}).get("pad_token")
        )

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        where = local_model_folder(config)
        if config.stack != "llama-factory" or config.raw.get("stage") != "pt" or where is None:
            return
        path = where / "tokenizer_config.json"
        eos, pad = self._eos_and_pad()
        if eos is None or pad not in (None, eos):
            return
        yield self.finding(
            (
                f"EOS {eos} is also the pad token, which stage pt masks in the loss: the model never learns where a"
                " text ends"
            ),
            (
                "set pad_token in tokenizer_config.json to a token that never ends a text, such as <unk> or a"
                " reserved token"
            ),
            cases=[
                setting_case(config, "pt", "stage"),
                Case(f"eos_token: {eos}, pad_token: {pad or 'none'}", file=str(path)),
            ],
        )


def _token_text(value: Any) -> str | None:
    """The text of a token of tokenizer_config.json, which may stand in a dictionary."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None
