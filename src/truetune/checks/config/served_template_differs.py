r"""The model is trained with another chat template than the one that it will be served with.

## What it does
Takes the marker before a question in the template that the settings name: Axolotl's `chat_template`, LLaMA-Factory's
and ms-swift's `template`, TRL's `chat_template_path`, a preference strategy that writes its own (Axolotl's `type:
chatml.intel`, `llama3.*`, `zephyr.*`, a `prompt_format`), or Axolotl's `type: alpaca`. It compares the marker with what
the tokenizer's own chat template writes there, or, if the tokenizer is not on this machine, with the template of the
published chat model of that name. For `type: alpaca` it fires if `chat_template` is set too, since that does not render
these rows. It also compares the marker with the template that a given file uses to prompt the trained weights:
`template` of LLaMA-Factory's chat and API, `--chat-template` of a vLLM server, TEMPLATE of a Modelfile. Unknown names
and templates are not checked.

## Why it is bad
LLaMA-Factory trains with its template but saves the tokenizer with the old one (unless it has none): an engine that
reads it builds prompts that the model was never trained on. Axolotl saves the template named at the top of the file,
but not that of a single data set; if it is saved, it is still wrong if the markers are not tokens of the model and are
split into pieces. A preference strategy saves none: rewards and accuracies are perfect on prompts that are never
served.

## Example
```yaml
files:
  model/tokenizer.json:
    version: "1.0"
    added_tokens: [{id: 0, content: <|im_end|>, special: true, single_word: false, lstrip: false, rstrip: false,
                    normalized: false}]
    model: {type: BPE, vocab: {<|im_end|>: 0, a: 1}, merges: []}
  model/tokenizer_config.json:
    eos_token: <|im_end|>
    chat_template: "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
config:
  model_name_or_path: model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  template: llama3
```

## Use instead
```yaml
files:
  model/tokenizer.json:
    version: "1.0"
    added_tokens: [{id: 0, content: <|im_end|>, special: true, single_word: false, lstrip: false, rstrip: false,
                    normalized: false}]
    model: {type: BPE, vocab: {<|im_end|>: 0, a: 1}, merges: []}
  model/tokenizer_config.json:
    eos_token: <|im_end|>
    chat_template: "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
config:
  model_name_or_path: model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  template: qwen
```

## Fix safety
If the model already has a chat format, keep that one. A model that was trained with another template has to be trained
again, or served with the template of the training.

## References
- hiyouga/LLaMA-Factory#6320, hiyouga/LLaMA-Factory#7785, hiyouga/LLaMA-Factory#5836, ollama/ollama#6823
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_TOKENIZER
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.config.evidence.template_marks_before_questions import (
    CHATML,
    CONTROL_TOKEN,
    LLAMA3,
    MARKERS,
    SAVED_TEMPLATES,
    chat_model_family,
    first_mark_without_role,
    mark_before_question_in_template,
    mark_before_question_of_chat_model,
    mark_before_question_of_model,
    own_template_of_strategy,
    text_before_question_in_own_template,
    tokenizer_has_token,
)
from truetune.checks.faults import Fault
from truetune.checks.find_uses_of_weight_folders import is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.parsing.read_ollama_modelfile import is_modelfile_name
from truetune.settings.config import Config, WeightUse

TEMPLATE_KEYS = {
    "axolotl": "chat_template",
    "llama-factory": "template",
    "ms-swift": "template",
    "trl": "chat_template_path",
}
FAMILIES = (("chatml", CHATML), ("llama3", LLAMA3))
"""Families of Axolotl's strategies for preferences that have the same variants (intel, argilla, ultra, ...)"""
NOT_NAMED = (None, "", "tokenizer_default")
"""Values of Axolotl's `chat_template` with which the tokenizer keeps its own"""
MAX_SERVERS = 3
"""Files that serve which are shown"""
SAVES_TOKENIZERS_TEMPLATE = ("llama-factory", "ms-swift")
"""Stacks that train by their own template, and save the tokenizer with its own"""


class ServedTemplateDiffers(ConfigRule):
    code = "CFG028"
    fault = Fault.SERVING_PROMPT_DIFFERS_FROM_TRAINING
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    stacks = ("axolotl", "llama-factory", "ms-swift", "trl")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the trained template or the one to compare it with is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if self._trained_question_marker() is None:
            return Unmet("it is about a template that is named in the settings, and known")
        if (
            text_before_question_in_own_template(self.subject) is None
            and self._mark_of_named_model() is None
        ):
            return NO_TOKENIZER
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: what both templates write before a question."""
        by_tokenizer = text_before_question_in_own_template(self.subject) is not None
        owner = "the tokenizer's template" if by_tokenizer else "the template of the model's family"
        return f"a question begins with {self._trained_question_marker()}, in {owner} too"

    def _mark_of_named_model(self) -> str | None:
        """The mark of the chat model that the settings name; None where its name does not say one.

        None as well where the tokenizer is that of another model.
        """
        spec = self.subject.spec
        is_own = spec.tokenizer in (None, spec.model)
        return mark_before_question_of_chat_model(spec.model) if spec.model and is_own else None

    def _trained_question_marker(self) -> str | None:
        """The text that the trained template writes before a question; None where it is unknown, or
        no question is trained.
        """
        if self.subject.spec.training.method == "pretrain":
            return None
        strategy = own_template_of_strategy(self.subject)
        if strategy is not None:
            return strategy.marker
        name = template_named_only_by_data_set(self.subject)
        name = name or str(self.subject.raw.get(TEMPLATE_KEYS.get(self.subject.stack, "")))
        if self.subject.stack == "trl":
            # The name of a model; the text of a Jinja file says nothing of a family.
            return (
                None
                if name.endswith((".jinja", ".jinja2", ".json"))
                else mark_before_question_of_model(name)
            )
        return MARKERS.get(name)

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        key = TEMPLATE_KEYS.get(config.stack)
        name = template_named_only_by_data_set(config) or str(config.raw.get(key or ""))
        strategy = own_template_of_strategy(config)
        if strategy is not None:
            key, name = "type", strategy.name
        marker = self._trained_question_marker()
        if key is None or marker is None:
            return
        own = text_before_question_in_own_template(config)
        yield from self._findings_on_servers(key, name, marker)
        if own is None:
            yield from self._findings_on_model_name(key, name, marker)
        # The tokenizer that the command names may be that of another run, where several are checked.
        if (
            own is None
            or self._is_served_as_trained(marker)
            or marker in own
            or mark_before_question_of_model(config.spec.model or "")
            == first_mark_without_role(marker)
        ):
            return
        yield from self._findings_on_tokenizer_template(key, name, marker, own)

    def _findings_on_tokenizer_template(
        self, key: str, name: str, marker: str, own: str
    ) -> Iterator[Finding]:
        """Findings on a template whose marker the tokenizer's own template does not write; `own` is
        what that writes.
        """
        config = self.subject
        unknown = self._tokens_of_mark_not_in_vocabulary(marker)
        lost = self._is_tokenizer_saved_with_other_template(name)
        evidence = [
            f"the tokenizer's template starts a user turn with {own[-60:]!r}",
            f"the tokenizer is saved with {'its own template' if lost else 'the named one'}",
        ]
        if unknown:
            evidence.append(f"not in the tokenizer's vocabulary: {', '.join(unknown)}")
        yield self.finding(
            (
                f"the model is trained with {marker} ({key} {name}), but the tokenizer's template, with which it is"
                " served, does not write that"
            )
            + self._describe_effect_of_own_template(),
            self._remedy_by_fitting_strategy_or_template()
            or f"set {key} to the template that matches the tokenizer's own, which is shown above",
            severity="warning" if lost or unknown else "info",
            evidence=evidence,
            cases=[
                self._case_of_template(key, name),
                Case("the tokenizer's template", file=str(config.spec.tokenizer)),
                *self._cases_of_servers(),
            ],
        )

    def _is_tokenizer_saved_with_other_template(self, name: str) -> bool:
        """Is the tokenizer saved with another template than the one that is trained?"""
        if own_template_of_strategy(self.subject) is not None:
            return True
        if template_named_only_by_data_set(self.subject):
            return True
        return self.subject.stack in SAVES_TOKENIZERS_TEMPLATE and name not in SAVED_TEMPLATES

    def _is_served_as_trained(self, marker: str) -> bool:
        """Does a file beside the settings serve what a strategy trains by the template of that strategy?"""
        if own_template_of_strategy(self.subject) is None:
            return False
        return any(
            mark_before_question_in_template(use.template) == first_mark_without_role(marker)
            for use in _servers_of_run(self.subject)
            if use.template
        )

    def _case_of_template(self, key: str, name: str) -> Case:
        """The case of the setting that names the template: for a strategy the list of the data
        sets.
        """
        place = "datasets" if own_template_of_strategy(self.subject) is not None else key
        if template_named_only_by_data_set(self.subject):
            place = "datasets.0.chat_template"
        return setting_case(self.subject, name, place)

    def _may_saved_template_be_meant(self, name: str, marker: str) -> bool:
        """May the template be what is wanted: is it saved with the weights, and written in tokens that the settings
        add?
        """
        if self._is_tokenizer_saved_with_other_template(name):
            return False
        training = self.subject.spec.training
        added = {*training.added_tokens, *training.special_tokens.values()}
        has_foreign_token = any(token not in added for token in CONTROL_TOKEN.findall(marker))
        return not has_foreign_token or name in SAVED_TEMPLATES

    def _remedy_by_template_of_family(self, key: str) -> str:
        """How the stack is told to take the template of the model's own family."""
        config = self.subject
        if config.stack == "trl":
            return f"remove {key}: the model already has its own chat format"
        if config.stack == "ms-swift":
            return f"remove {key}: ms-swift then takes the model's own template"
        family = chat_model_family(config.spec.model or "")
        if config.stack == "llama-factory" and family is not None and family.llama_factory:
            return f"set {key}: {family.llama_factory}, LLaMA-Factory's template for this model"
        return f"set {key} to the template of the model's own family, which servers take from the tokenizer"

    def _findings_on_model_name(self, key: str, name: str, marker: str) -> Iterator[Finding]:
        """Findings on a template of another family than the chat model's, by the model's name."""
        config, mark = self.subject, self._mark_of_named_model()
        if (
            mark is None
            or mark == first_mark_without_role(marker)
            or self._is_served_as_trained(marker)
            or self._may_saved_template_be_meant(name, marker)
        ):
            return
        yield self.finding(
            f"{key} {name} writes {first_mark_without_role(marker)} before a question, but {config.spec.model}"
            f" belongs to a family that writes {mark}" + self._describe_effect_of_own_template(),
            self._remedy_by_fitting_strategy_or_template()
            or self._remedy_by_template_of_family(key),
            evidence=[
                "inferred from the model's name: no chat template of its tokenizer is on this machine"
            ],
            cases=[
                self._case_of_template(key, name),
                setting_case(config, config.spec.model, "model"),
                *self._cases_of_servers(),
            ],
        )

    def _describe_effect_of_own_template(self) -> str:
        """What a template of its own means for a strategy for preferences, in words; empty for any
        other.
        """
        if own_template_of_strategy(self.subject) is None:
            return ""
        trained = "preference is" if self.subject.raw.get("rl") else "answers are"
        return (
            f": the {trained} trained on prompts that no server builds, since a server uses the tokenizer's template"
            " by default (vLLM without --chat-template)"
        )

    def _remedy_by_fitting_strategy_or_template(self) -> str:
        """The strategy that fits the tokenizer's template; empty where no strategy writes one of its own."""
        strategy = own_template_of_strategy(self.subject)
        if strategy is None:
            return ""
        if not self.subject.raw.get("rl"):
            return (
                "write the rows as messages and set type: chat_template, which renders them with chat_template; or"
                " prompt the tuned model with Alpaca's prompt"
            )
        mark, variant = self._mark_of_named_model(), strategy.name.partition(".")[2]
        family = next((one for one, own in FAMILIES if first_mark_without_role(own) == mark), None)
        fitting = f"type: {family}.{variant}, or " if family and variant != "default" else ""
        return (
            f"set {fitting}type: chat_template.default with chat_template: tokenizer_default, which renders chats"
            " with the model's own template, and train again; or serve with the template of the training (vLLM"
            " --chat-template FILE)"
        )

    def _cases_of_servers(self) -> list[Case]:
        """The files that serve what a strategy trains, without a template of their own."""
        if own_template_of_strategy(self.subject) is None:
            return []
        uses = [use for use in _servers_of_run(self.subject) if not use.template]
        return [Case(use.text, file=use.file, line=use.line) for use in uses[:MAX_SERVERS]]

    def _tokens_of_mark_not_in_vocabulary(self, marker: str) -> list[str]:
        """The control tokens of a mark that the tokenizer cuts into several, and the settings do not add."""
        config, training = self.subject, self.subject.spec.training
        added = {*training.added_tokens, *training.special_tokens.values()}
        return [
            token
            for token in CONTROL_TOKEN.findall(marker)
            if tokenizer_has_token(config, token) is False and token not in added
        ]

    def _findings_on_servers(self, key: str, name: str, marker: str) -> Iterator[Finding]:
        """Findings on files given beside the settings that ask the trained weights with another
        template.
        """
        config = self.subject
        output = str(config.raw.get("output_dir") or "")
        by_file = {use.file: use for use in reversed(config.uses) if use.template}
        for use in by_file.values():
            mark = mark_before_question_in_template(use.template)
            if (
                mark is None
                or mark == first_mark_without_role(marker)
                or not _asks_trained_weights(use, output)
            ):
                continue
            yield self.finding(
                f"the model is trained with the template {name} ({first_mark_without_role(marker)}), but"
                f" {Path(use.file).name} {use.verb} it with another one ({mark})",
                "use the same template in both files: the model was never trained on prompts of the other one",
                cases=[
                    self._case_of_template(key, name),
                    Case(use.text, file=use.file, line=use.line),
                ],
            )


def _servers_of_run(config: Config) -> list[WeightUse]:
    """The files given beside the settings that serve what the run writes."""
    output = str(config.raw.get("output_dir") or "")
    return [
        use for use in config.uses if use.verb == "serves" and _asks_trained_weights(use, output)
    ]


def _asks_trained_weights(use: WeightUse, output: str) -> bool:
    """Does a file ask what the run writes: its output folder, or weights that were converted to GGUF?"""
    if is_modelfile_name(Path(use.file)):
        return True
    if use.folders and all(Path(folder).suffix == ".gguf" for folder in use.folders):
        return True
    return any(output and is_same_or_below(folder, output) for folder in use.folders)


def template_named_only_by_data_set(config: Config) -> str:
    """The template that Axolotl's first data set names while the settings name none, so that the tokenizer is saved
    without it; empty where that is not so.
    """
    if config.stack != "axolotl" or config.raw.get("chat_template") not in NOT_NAMED:
        return ""
    named = next(
        (item.get("chat_template") for _, item in numbered_tables_of_list(config, "datasets")), None
    )
    return named if isinstance(named, str) and named not in NOT_NAMED else ""
