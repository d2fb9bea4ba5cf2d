"""LoRA does not train the embeddings of tokens that are new, or that the base model never trained.

## What it does
For an adapter with added tokens that the tokenizer does not have yet, looks for `embed_tokens` and `lm_head` in
`modules_to_save` (the embedding suffices if the two share their weights), or for `trainable_token_indices`.
LLaMA-Factory adds the embeddings by itself, unless `additional_target` is set. The same applies if a chat template
writes tokens that a published base model has in its vocabulary but never trained: `<|eot_id|>` and the header tokens of
Llama 3.

## Why it is bad
The embeddings of new tokens are random or a mean, stay so, and are not in the saved adapter: the model can neither read
nor write these tokens, and after a reload their embeddings are random again. Tokens that a base model never trained
have embeddings that are zero or all alike. The model cannot distinguish them, writes `assistant` as a word, foreign
words or symbols, and does not stop.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_target_linear: true
  tokens: ["<call>", "</call>"]
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_target_linear: true
  lora_modules_to_save: [embed_tokens, lm_head]
  tokens: ["<call>", "</call>"]
```

## Fix safety
Training the whole embeddings takes memory (vocabulary x width, with optimizer states), and they are saved with the
adapter. peft's `trainable_token_indices` takes the ids of the new tokens and trains only those.

## References
- meta-pytorch/torchtune#2429, unslothai/unsloth#929 (marks of Llama 3's bases)
- artidoro/qlora#214, huggingface/peft#334, huggingface/peft#1300, axolotl-ai-cloud/axolotl#1570, unslothai/unsloth#237
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import is_head_tied, local_model_folder
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_LORA
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.identify_model_by_published_name import chat_markers_base_never_trained
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json
from truetune.settings.config import Config
from truetune.settings.training_settings import Lora

EMBEDDING_NAMES = ("embed_tokens", "wte", "embed_in", "word_embeddings", "tok_embeddings")
HEAD_NAMES = ("lm_head", "embed_out", "output", "output_layer")
TEMPLATE_KEYS = ("chat_template", "template")
MARKS_OF_TEMPLATES = {
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "qwen": ("<|im_start|>", "<|im_end|>"),
}
"""How the name of a stack's template begins, without hyphens -> the marks that it writes"""
MODULES_TO_SAVE = {"axolotl": "lora_modules_to_save", "llama-factory": "additional_target"}
"""What a stack calls peft's modules_to_save"""


class NewTokensLeftUntrained(ConfigRule):
    code = "CFG020"
    fault = Fault.NEW_TOKENS_NOT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    about = ("training.added_tokens",)
    reads = ("training.lora.modules_to_save", "training.lora.trainable_token_indices")
    by_trainer = (SeverityByFact("prepares_model", {True: MOOT}),)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet without LoRA; else as other rules, unless the base never trained marks of the template.
        """
        if self.subject.spec.training.lora is None:
            return NO_LORA
        return None if _marks_base_never_trained(self.subject) else super().unmet()

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_added_tokens()
        yield from self._findings_on_template_marks()

    def _findings_on_template_marks(self) -> Iterator[Finding]:
        """Findings on marks of the template that the base has in its vocabulary and never trained."""
        config, lora = self.subject, self.subject.spec.training.lora
        marks = _marks_base_never_trained(config)
        if lora is None or lora.trainable_token_indices or not marks:
            return
        trained = {
            name.rpartition(".")[2]
            for name in (*lora.modules_to_save, *_modules_listed(lora.target_modules))
        }
        if trained & {*EMBEDDING_NAMES, *HEAD_NAMES} or config.raw.get("fix_untrained_tokens"):
            return
        setting = MODULES_TO_SAVE.get(config.stack, "modules_to_save")
        yield self.finding(
            f"the base model {config.spec.model} was never trained on {', '.join(marks)}, which the chat template"
            f" writes, and LoRA does not train their embeddings ({setting} is not set): the model cannot learn these"
            " tokens",
            f"start from the instruct model, or set {setting} to [embed_tokens, lm_head]",
            severity="warning",
            cases=[
                setting_case(config, config.spec.model, "model"),
                setting_case(config, _stack_template_name(config), *TEMPLATE_KEYS),
            ],
        )

    def _findings_on_added_tokens(self) -> Iterator[Finding]:
        """Findings on tokens that the settings add."""
        config, training = self.subject, self.subject.spec.training
        lora = training.lora
        if lora is None or lora.trainable_token_indices or not training.added_tokens:
            return
        # LLaMA-Factory trains embeddings and head itself where tokens are added and nothing else is said.
        if config.stack == "llama-factory" and not lora.modules_to_save:
            return
        vocabulary = _tokens_of_tokenizer(config)
        new = [
            token
            for token in training.added_tokens
            if vocabulary is None or token not in vocabulary
        ]
        missing = _untrained_embedding_and_head(config, lora)
        if new and missing:
            yield self._finding_on_new_tokens(
                new, missing, is_known=vocabulary is not None, lora=lora
            )

    def _finding_on_new_tokens(
        self, new: list[str], missing: list[str], *, is_known: bool, lora: Lora
    ) -> Finding:
        """The finding on these new tokens; `is_known` where the tokenizer's vocabulary was read."""
        more = f" and {len(new) - 5:,} more" if len(new) > 5 else ""
        shown = ", ".join(new[:5]) + more
        names = " and ".join(missing)
        saved_modules = ", ".join(lora.modules_to_save) or "not set"
        return self.finding(
            (
                f"the rows of {names} for {len(new):,} new tokens ({shown}) are neither trained nor saved: the model"
                " cannot learn to read or write these tokens"
            ),
            f"add {names} to {MODULES_TO_SAVE.get(self.subject.stack, 'modules_to_save')}",
            severity="error" if is_known and len(missing) == 2 else "warning",
            evidence=[
                "the tokenizer's vocabulary has none of them"
                if is_known
                else "no tokenizer was found here: if its vocabulary already has these tokens, ignore this"
            ],
            cases=[
                setting_case(self.subject, shown, "training.added_tokens"),
                setting_case(self.subject, saved_modules, "training.lora.modules_to_save"),
            ],
        )


def _marks_base_never_trained(config: Config) -> tuple[str, ...]:
    """The marks that the run's template writes and its base has never trained, by the base's published name.

    Where its weights are here, `base-model-special-tokens-untrained` reads them.
    """
    if config.stack == "llama-factory" and not config.raw.get("do_train"):
        return ()
    marks = chat_markers_base_never_trained(config.spec.model or "")
    template = _stack_template_name(config)
    if not marks or template is None or local_model_folder(config) is not None:
        return ()
    writes = next(
        (ones for name, ones in MARKS_OF_TEMPLATES.items() if template.startswith(name)), ()
    )
    return marks if set(marks) <= set(writes) else ()


def _stack_template_name(config: Config) -> str | None:
    """The stack's own chat template by its name; None where the run takes that of the tokenizer."""
    named = [config.raw.get(key) for key in TEMPLATE_KEYS]
    named += [item.get("chat_template") for _, item in numbered_tables_of_list(config, "datasets")]
    return next((name.lower().replace("-", "") for name in named if isinstance(name, str)), None)


def _untrained_embedding_and_head(config: Config, lora: Lora) -> list[str]:
    """The embedding and the head, where they are not trained; tied ones are trained by either."""
    names = {
        name.rpartition(".")[2]
        for name in (*lora.modules_to_save, *_modules_listed(lora.target_modules))
    }
    missing = [ends[0] for ends in (EMBEDDING_NAMES, HEAD_NAMES) if names.isdisjoint(ends)]
    return [] if is_head_tied(config) and len(missing) < 2 else missing


def _modules_listed(targets: tuple[str, ...] | str | None) -> tuple[str, ...]:
    """The modules of a list; none where a pattern stands in its place."""
    return targets if isinstance(targets, tuple) else ()


def _tokens_of_tokenizer(config: Config) -> frozenset[str] | None:
    """The tokens of the tokenizer; None where it is not available."""
    where = local_model_folder(config)
    path = where / "tokenizer.json" if where else None
    try:
        if path is None:
            return None
        value = read_json(path, MODEL_FILE)
        added = {token["content"] for token in value.get("added_tokens") or ()}
        vocabulary = value["model"]["vocab"]
        names = vocabulary if isinstance(vocabulary, dict) else [entry[0] for entry in vocabulary]
        return frozenset((*names, *added))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
