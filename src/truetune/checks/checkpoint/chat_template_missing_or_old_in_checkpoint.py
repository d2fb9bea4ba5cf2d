"""The checkpoint has no chat template, or not the one used in training.

## What it does
Compares the chat templates of the checkpoint with those of the base, and with the one that truetune recorded when it
encoded the training data (`manifest.json` beside the checkpoint). A template that differs from the recorded one, or
none where the base has one, is an error. Two templates in one folder that differ (`chat_template.jinja` and
`tokenizer_config.json`) are a warning. A template that only differs from the base's, and a model saved without its
tokenizer, are info.

## Why it is bad
The engine refuses chats, or renders them with its own default: the model gets a format that it was not trained on.
Answers get worse, and the stop token differs.

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
Saving the training tokenizer beside the weights (`tokenizer.save_pretrained`) is safe.

## References
- hiyouga/LlamaFactory#5836, hiyouga/LlamaFactory#7785, Lightning-AI/litgpt#1986, modelscope/ms-swift#2831
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from truetune.checkpoint.load_checkpoint import Checkpoint
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.errors import TokenizerError
from truetune.render.find_tokenizer_folder import read_templates

REMEDY = "save the tokenizer that was used in training beside the weights: tokenizer.save_pretrained(FOLDER)"
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "tokenizer.model", "vocab.json")
JINJA = "chat_template.jinja"


class ChatTemplateMissingOrOldInCheckpoint(CheckpointRule):
    code = "CKP021"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    symptoms = ("garbage-output", "odd-metrics", "good-here-bad-there")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        checkpoint, base = self.subject, self.subject.base
        own = _read_templates_by_name(checkpoint)
        of_base = _read_templates_by_name(base) if base is not None else {}
        if own is None or of_base is None:
            return Unmet("the chat template can't be read, which the rules on tokenizers are about")
        trained = _digests_of_trained_templates(checkpoint)
        if base is None and not trained:
            return Unmet(
                "there is no base and no record of the training to compare it with", "name --base"
            )
        if own or of_base or trained:
            return None
        return Unmet("neither it nor its base has a chat template")

    def measurement_if_clean(self) -> str:
        """The number of chat templates, and where they are the same: in the training's record or the base."""
        own = _read_templates_by_name(self.subject) or {}
        if not own:
            return "0 templates of its own: the base's is used"
        trained = _digests_of_trained_templates(self.subject)
        source = "in the record of the training" if trained else "the base has them"
        return f"{len(own):,} templates, as {source}"

    def findings(self) -> Iterator[Finding]:
        base = self.subject.base
        own = _read_templates_by_name(self.subject)
        of_base = _read_templates_by_name(base) if base is not None else {}
        if own is None or of_base is None:
            return
        unserved = self._digests_of_unserved_templates(own, of_base)
        if unserved:
            served = own if self._has_tokenizer_or_template() else of_base
            yield self._finding_on_unserved_templates(unserved, len(served))
        elif of_base:
            yield from self._finding_on_template_unlike_base(own, of_base)
        yield from self._finding_on_contradicting_template_files(own)

    def _has_tokenizer_or_template(self) -> bool:
        """Is a tokenizer, or its template, saved with the checkpoint? Else the base's is used."""
        return any(self.subject.has_file(name) for name in (*TOKENIZER_FILES, JINJA))

    def _digests_of_unserved_templates(
        self, own: dict[str, str], of_base: dict[str, str]
    ) -> dict[str, str]:
        """Templates of the training, by name, that the one which will be used is not; empty where nothing is known.

        Args:
            own: the checkpoint's templates by name.
            of_base: the base's; none where there is no base.
        """
        has_tokenizer = self._has_tokenizer_or_template()
        served = own if has_tokenizer else of_base
        # Without a tokenizer and without a base nobody knows what will be used.
        if not served and not has_tokenizer:
            return {}
        digests = {_digest_template(text) for text in served.values()}
        trained = _digests_of_trained_templates(self.subject)
        return {name: digest for name, digest in trained.items() if digest not in digests}

    def _finding_on_template_unlike_base(
        self, own: dict[str, str], of_base: dict[str, str]
    ) -> Iterator[Finding]:
        """The finding that the checkpoint lacks the base's template, or has another one; at most
        one.
        """
        if not self._has_tokenizer_or_template():
            if self.subject.kind == "model":
                yield self.finding(
                    "the model is saved without its tokenizer", REMEDY, severity="info"
                )
        elif not own:
            message = (
                f"the base has a chat template ({', '.join(of_base)}), but the checkpoint has none"
            )
            yield self.finding(message, REMEDY)
        # Where the training is known and its template is served, another one than the base's is right.
        elif not _digests_of_trained_templates(self.subject) and not set(own.values()) <= set(
            of_base.values()
        ):
            yield self.finding(
                "the chat template is not the base's",
                "check that it is the template that was used in training",
                severity="info",
                evidence=[f"{name}: {len(text):,} characters" for name, text in own.items()],
            )

    def _finding_on_unserved_templates(self, unserved: dict[str, str], served: int) -> Finding:
        """The finding that none of the `served` templates is one that the record of the data names."""
        state = f"has {served:,} others"
        if served < 2:
            state = "has another" if served else "has none"
        return self.finding(
            f"the rows were encoded with the chat template {', '.join(unserved)}, but the checkpoint"
            f" {state}",
            REMEDY,
            evidence=[f"recorded digest of {name}: {digest}" for name, digest in unserved.items()],
        )

    def _finding_on_contradicting_template_files(self, own: dict[str, str]) -> Iterator[Finding]:
        """The finding that the template's file and the tokenizer's settings differ."""
        in_settings = self.subject.tokenizer_config.get("chat_template")
        if not self.subject.has_file(JINJA) or not isinstance(in_settings, str):
            return
        if in_settings.strip() != own.get("default", in_settings).strip():
            yield self.finding(
                f"{JINJA} and tokenizer_config.json contain two different chat templates: older"
                " engines use the second",
                "delete chat_template from tokenizer_config.json",
                severity="warning",
            )


def _read_templates_by_name(checkpoint: Checkpoint) -> dict[str, str] | None:
    """The chat templates of a checkpoint by name; None if they can't be read, which the rules on
    tokenizers say.
    """
    try:
        return read_templates(checkpoint.folder, dict(checkpoint.tokenizer_config))
    except TokenizerError:
        return None


def _digests_of_trained_templates(checkpoint: Checkpoint) -> dict[str, str]:
    """Name -> digest of the templates that the rows were encoded with; empty where no record says it."""
    inputs = checkpoint.record.get("inputs")
    templates = inputs.get("templates") if isinstance(inputs, dict) else None
    if not isinstance(templates, dict):
        return {}
    return {str(name): str(digest) for name, digest in templates.items()}


def _digest_template(text: str) -> str:
    """The digest of a template, made as `encoding/cache_key.py` makes it: only equal digests can be
    compared.
    """
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
