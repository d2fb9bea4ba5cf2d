"""The checkpoint has no chat template, or another one than was trained.

## What it does
Compares the chat templates of the checkpoint with those of the base, and with what truetune noted when it encoded the
training data (`manifest.json` beside the checkpoint). Names two templates in one folder that differ
(`chat_template.jinja` and `tokenizer_config.json`), and a model that is saved without its tokenizer.

## Why it is bad
The engine refuses chats, or renders them with a default of its own: the model is asked in a format that it was not
trained on. Answers get worse, and the stop token is another one.

## Example
```yaml
llama: 2
tokens: {}
files: {chat_template.jinja: "{{ messages[0].content }}", tokenizer_config.json: {chat_template: "{{ messages }}"}}
```

## Use instead
```yaml
llama: 2
tokens: {}
base: {llama: 2, tokens: {}}
```

## Fix safety
Saving the tokenizer that was used for training beside the weights (`tokenizer.save_pretrained`) is safe.

## References
- hiyouga/LlamaFactory#5836, hiyouga/LlamaFactory#7785, Lightning-AI/litgpt#1986, modelscope/ms-swift#2831
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.errors import TokenizerError
from truetune.render.tokenizer_folder import read_templates

REMEDY = "save the tokenizer that was used for training beside the weights"
TOKENIZER = ("tokenizer_config.json", "tokenizer.json", "tokenizer.model", "vocab.json")
JINJA = "chat_template.jinja"


class ChatTemplateMissingOrOldInCheckpoint(CheckpointRule):
    code = "CKP021"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        found, base = self.subject, self.subject.base
        mine, theirs = _templates(found), _templates(base) if base is not None else {}
        if mine is None or theirs is None:
            return Unmet("the chat template can't be read, which the rules on tokenizers are about")
        if base is None and not _trained(found):
            return Unmet(
                "there is no base and no record of the training to compare it with", "name --base"
            )
        return (
            None
            if mine or theirs or _trained(found)
            else Unmet("neither it nor its base has a chat template")
        )

    def figure(self) -> str:
        mine, trained = _templates(self.subject) or {}, _trained(self.subject)
        if not mine:
            return "0 templates of its own: the base's holds"
        return (
            f"{len(mine):,} templates, as"
            f" {'in the record of the training' if trained else 'the base has them'}"
        )

    def findings(self) -> Iterator[Finding]:
        found, base = self.subject, self.subject.base
        mine, theirs = _templates(found), _templates(base) if base is not None else {}
        if mine is None or theirs is None:
            return
        yield from self._against_training_and_base(mine, theirs)
        yield from self._two_in_one_folder(mine)

    def _against_training_and_base(
        self, mine: dict[str, str], theirs: dict[str, str]
    ) -> Iterator[Finding]:
        """Is it the template of the training, as far as the record or the base tells? At most one finding.

        Args:
            mine: The checkpoint's templates by name.
            theirs: The base's; none where there is no base.
        """
        found = self.subject
        has_tokenizer = any(found.has(name) for name in (*TOKENIZER, JINJA))
        trained, served = _trained(found), mine if has_tokenizer else theirs
        digests = {_digest(text) for text in served.values()}
        lost = {name: digest for name, digest in trained.items() if digest not in digests}
        if lost and (served or has_tokenizer):
            yield self._not_the_trained_one(lost, len(served))
        elif not theirs:
            return
        elif not has_tokenizer:
            if found.kind == "model":
                yield self.finding(
                    "the model is saved without its tokenizer", REMEDY, severity="info"
                )
        elif not mine:
            message = f"the base has a chat template ({', '.join(theirs)}), the checkpoint has none"
            yield self.finding(message, REMEDY)
        elif not trained and not set(mine.values()) <= set(theirs.values()):
            yield self.finding(
                "the chat template is not the base's",
                "make sure that it is the one that was trained with",
                severity="info",
                evidence=[f"{name}: {len(text):,} characters" for name, text in mine.items()],
            )

    def _not_the_trained_one(self, lost: dict[str, str], served: int) -> Finding:
        """The record of the data names templates that none of the `served` ones is."""
        state = f"has {served:,} others"
        if served < 2:
            state = "has another" if served else "has none"
        return self.finding(
            f"the rows were encoded with the chat template {', '.join(lost)}, and the checkpoint"
            f" {state}",
            REMEDY,
            evidence=[
                f"digest of {name} in the record of the data: {digest}"
                for name, digest in lost.items()
            ],
        )

    def _two_in_one_folder(self, mine: dict[str, str]) -> Iterator[Finding]:
        """Do the template's file and the tokenizer's settings differ?"""
        inside = self.subject.tokenizer_config.get("chat_template")
        if not self.subject.has(JINJA) or not isinstance(inside, str):
            return
        if inside.strip() != mine.get("default", inside).strip():
            yield self.finding(
                f"{JINJA} and tokenizer_config.json hold two chat templates that differ: older"
                " engines take the second",
                "delete chat_template from tokenizer_config.json",
                severity="warning",
            )


def _templates(found: Checkpoint) -> dict[str, str] | None:
    """By name; None where they can't be read, which rules for tokenizers say."""
    try:
        return read_templates(found.folder, dict(found.tokenizer_config))
    except TokenizerError:
        return None


def _trained(found: Checkpoint) -> dict[str, str]:
    inputs = found.record.get("inputs")
    templates = inputs.get("templates") if isinstance(inputs, dict) else None
    return {str(k): str(v) for k, v in templates.items()} if isinstance(templates, dict) else {}


def _digest(text: str) -> str:
    """As encoding/cache_key.py makes it"""
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
