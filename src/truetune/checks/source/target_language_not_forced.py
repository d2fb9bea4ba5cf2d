"""A multilingual translation model generates without the code of the target language.

## What it does
Inspects scripts that generate with NLLB, mBART-50 or M2M100, recognised by the name of the model or the tokenizer
class: calls of `generate`, evaluations with `predict_with_generate`, and pipelines. It fires if nothing in the project
mentions `forced_bos_token_id`, the decoder's first tokens, or (for pipelines) `tgt_lang`. It does not report a saved
model next to the script whose generation_config.json has it, and models with one target language.

## Why it is bad
The first token of the decoder names the language. Without it the model picks one itself: often the source language or
English, and a fine-tuned model may pick a different one for each sentence.

## Example
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("facebook/nllb-200-distilled-600M", src_lang="eng_Latn")
model = AutoModelForSeq2SeqLM.from_pretrained("facebook/nllb-200-distilled-600M")
out = model.generate(**tokenizer("Where is the station?", return_tensors="pt"), max_new_tokens=60)
```

## Use instead
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("facebook/nllb-200-distilled-600M", src_lang="eng_Latn")
model = AutoModelForSeq2SeqLM.from_pretrained("facebook/nllb-200-distilled-600M")
target = tokenizer.convert_tokens_to_ids("deu_Latn")
out = model.generate(
    **tokenizer("Where is the station?", return_tensors="pt"), max_new_tokens=60, forced_bos_token_id=target
)
```

## Fix safety
Safe. In training, also set `tokenizer.tgt_lang` and encode the targets with `text_target`, so that they begin with the
same token.

## References
- huggingface/transformers documentation, NLLB, MBart-50 and M2M100
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.model_folder_settings import read_folder_settings
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import training_scripts_beside
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

# mBART-50 "many-to-one" always writes English; OPUS models have one target, or name it in the text.
MANY_LANGUAGES = re.compile(
    r"(?:^|/)(?:nllb-(?:200|moe)|m2m100|mbart-large-50(?!-many-to-one)|small-100)", re.I
)
TOKENIZERS: tuple[str, ...] = (
    "transformers.Nllb*Tokenizer*.from_*",
    "transformers.M2M100Tokenizer*.from_*",
    "transformers.MBart50Tokenizer*.from_*",
)
FORCED = "forced_bos_token_id"
FIRST_TOKENS = (
    FORCED,
    "decoder_start_token_id",
    "decoder_input_ids",
    "lang_code_to_id",
    "get_lang_id",
)
"""Words by which a project gives the decoder its first tokens"""
EVALUATIONS = ("transformers.Seq2SeqTrainingArguments",)


def _multilingual_generations(module: Module) -> Iterator[Call]:
    """Where a script generates with a model of many target languages."""
    if not _loads_multilingual_model(module):
        return
    yield from generate_calls(module)
    for call in module.calls("transformers.pipeline"):
        if call.argument(0, "task") is not None:
            yield call
    for call in module.calls(*EVALUATIONS):
        if module.flow.value(call.keywords.get("predict_with_generate")) is True:
            yield call


class TargetLanguageNotForced(SourceRule):
    code = "SRC280"
    fault = Fault.ANSWERS_IN_ANOTHER_LANGUAGE
    symptoms = ("garbage-output",)
    severity = "warning"
    looks_at = CodePlaces(
        "generations with translation models that know many languages", _multilingual_generations
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = [
            call
            for call in _multilingual_generations(module)
            if not _names_target_language(module, call)
        ]
        if (
            not calls
            or _sets_first_decoder_tokens(module)
            or _loaded_folder_saves_target_language(module)
        ):
            return
        yield self.finding(
            "the model translates into many languages, but nothing sets the target: without forced_bos_token_id the"
            " decoder picks the language itself",
            'pass forced_bos_token_id=tokenizer.convert_tokens_to_ids("deu_Latn") to generate (your target\'s code;'
            ' mBART-50: "de_DE", M2M100: tokenizer.get_lang_id("de")); for a trainer set'
            " model.generation_config.forced_bos_token_id",
            cases=[case_of_node(module, call.node) for call in calls],
        )


def _loads_multilingual_model(module: Module) -> bool:
    """Does a file load such a model or its tokenizer?"""
    if any(True for _ in module.calls(*TOKENIZERS)):
        return True
    loads = [
        call.argument(0, "pretrained_model_name_or_path")
        for call in module.calls("*.from_pretrained")
    ]
    loads += [call.argument(1, "model") for call in module.calls("transformers.pipeline")]
    return any(
        MANY_LANGUAGES.search(name) for given in loads for name in possible_texts(module, given)
    )


def _names_target_language(module: Module, call: Call) -> bool:
    """Does a call name the target: an argument of it, or what is spread into it?"""
    if FORCED in call.keywords or "decoder_input_ids" in call.keywords:
        return True
    if call.named("transformers.pipeline"):
        task = module.flow.value(call.argument(0, "task"))
        # `translation_en_to_de` names it; so may the call of the pipeline.
        is_named = isinstance(task, str) and "_to_" in task
        return is_named or not str(task).startswith("translation") or module.mentions("tgt_lang")
    return False


def _sets_first_decoder_tokens(module: Module) -> bool:
    """Does any file of the project give the decoder its first tokens?"""
    parts = [*module.self_and_files_run_together, *training_scripts_beside(module)]
    return any(part.mentions(word) for part in parts for word in FIRST_TOKENS)


def _loaded_folder_saves_target_language(module: Module) -> bool:
    """Has a folder that the file loads a generation config with the target in it?"""
    for call in module.calls("*.from_pretrained"):
        for name in possible_texts(module, call.argument(0, "pretrained_model_name_or_path")):
            file = Path(module.path).parent / name / "generation_config.json"
            if read_folder_settings(file).get(FORCED) is not None:
                return True
    return False
