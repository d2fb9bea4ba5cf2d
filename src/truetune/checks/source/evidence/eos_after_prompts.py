"""Finds prompts that end in EOS because the tokenizer writes it after each text, in the symbolic
run of a script.

How it works: the ids that a causal model generates from are followed back to the tokenizer, and the
tokenizer to how it was loaded: `add_eos_token=True`, the attribute that was set last, or
tokenizer_config.json of a folder that is here.

The trade-off: ids that are changed on the way, a text from a chat template, and
`add_special_tokens=False` end the way back. Not every tokenizer of transformers 4 obeys
`add_eos_token`; where the name does not tell, it is a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.source.evidence.causal_decoder_models import is_causal_decoder
from truetune.checks.source.evidence.prompts_padded_on_the_right import (
    TOKENIZER_LOADS,
    call_making_ids,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    normalized_model_name,
)
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Mapping, Result, Value

ENGINES = ("vllm.LLM", "vllm.*.LLM")
ENCODING_METHODS = ("__call__", "encode", "encode_plus", "batch_encode_plus")
SETTING = "add_eos_token"
CONFIG_FILE = "tokenizer_config.json"
OBEYS = re.compile(r"codellama|gemma|llama-?2|mistral-7b|mixtral|tinyllama|vicuna|zephyr|command-r")
"""Names of models whose tokenizers obey the setting in transformers 4 too (Llama's, Gemma's and Cohere's classes)"""
OBEYING_CLASSES = re.compile(r"(Code)?(Llama|Gemma|Cohere|GPTNeoX)Tokenizer(Fast)?")


class PromptEndingInEos(NamedTuple):
    """A prompt that ends in EOS."""

    generation: CallEvent
    sign: ast.AST | None
    """What switches it on in the file; None for a file of the tokenizer"""
    why: str
    is_sure: bool
    """Does this tokenizer obey it in every release of transformers?"""


class _EosSetting(NamedTuple):
    """How a tokenizer came to write EOS."""

    node: ast.AST | None
    why: str
    is_sure: bool


def prompts_ending_in_eos(module: Module) -> Iterator[PromptEndingInEos]:
    """The generations of a file from prompts that end in EOS, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for generation in trace.methods("generate") if trace.is_whole else ():
            if generation.home.path != module.path or generation.node in seen:
                continue
            eos_setting = _eos_setting_of_generation(trace, generation)
            if eos_setting is not None:
                seen.add(generation.node)
                yield PromptEndingInEos(generation, *eos_setting)


def _eos_setting_of_generation(trace: Trace, generation: CallEvent) -> _EosSetting | None:
    """What makes the tokenizer of a generation write EOS; None where nothing surely does."""
    model = generation.receiver
    if isinstance(model, Result) and model.call.named(*ENGINES):
        return _eos_setting_of_vllm(model.call, generation)
    if not is_causal_decoder(model):
        return None
    ids = generation.keywords.get("input_ids") or generation.argument(0, "inputs")
    ids = generation.keywords.get("**") if ids is None else ids
    encoding = None if ids is None else call_making_ids(ids)
    tokenizer = None if encoding is None else encoding.receiver
    if encoding is None or not isinstance(tokenizer, Result):
        return None
    is_loaded = tokenizer.call.named(*TOKENIZER_LOADS) and _encodes_with_special_tokens(
        trace, encoding
    )
    return _eos_setting_of_tokenizer(trace, tokenizer, encoding) if is_loaded else None


def _eos_setting_of_vllm(engine: CallEvent, generation: CallEvent) -> _EosSetting | None:
    """What makes the tokenizer of vLLM write EOS after texts; None where nothing surely does."""
    # Ids, and prompts as dictionaries, are not encoded by the engine.
    prompts = generation.argument(0, "prompts")
    if "prompt_token_ids" in generation.keywords or isinstance(prompts, Mapping):
        return None
    return _eos_setting_of_local_folder(
        engine, engine.argument(1, "tokenizer") or engine.argument(0, "model")
    )


def _encodes_with_special_tokens(trace: Trace, encoding: CallEvent) -> bool:
    """Does a tokenizer encode a text with its special tokens, and are its ids left as they are?"""
    if encoding.method not in ENCODING_METHODS or encoding.is_open:
        return False
    add_special_tokens_argument = encoding.keywords.get("add_special_tokens")
    if (
        add_special_tokens_argument is not None
        and constant_of(add_special_tokens_argument) is not True
    ):
        return False
    return not any(store.base is encoding.result for store in trace.stores)


def _eos_setting_of_tokenizer(
    trace: Trace, tokenizer: Result, encoding: CallEvent
) -> _EosSetting | None:
    """What switches EOS on for a tokenizer, as it is when it encodes."""
    load = tokenizer.call
    name = constant_of(load.argument(0, "pretrained_model_name_or_path"))
    is_sure = isinstance(name, str) and OBEYS.match(normalized_model_name(name)) is not None
    argument = load.keywords.get(SETTING)
    eos_setting = (
        _eos_setting_of_local_folder(load, load.argument(0, "pretrained_model_name_or_path"))
        if argument is None
        else None
    )
    if constant_of(argument) is True:
        eos_setting = _EosSetting(load.node, f"{SETTING}=True", is_sure)
    for store in trace.stores:
        if store.key != SETTING or store.number > encoding.number:
            continue
        # Another object may be this tokenizer, by a way that is not followed.
        if store.base is not tokenizer or any(store.frames("branch")):
            return None
        is_on = constant_of(store.value) is True
        eos_setting = _EosSetting(store.node, f"{SETTING} = True", is_sure) if is_on else None
    return eos_setting


def _eos_setting_of_local_folder(load: CallEvent, name: Value | None) -> _EosSetting | None:
    """What the file of a tokenizer says that lies in a folder beside the script."""
    folder = constant_of(name)
    if not isinstance(folder, str) or not folder or "\0" in folder:
        return None
    for root in (Path(load.home.path).parent, Path()):
        try:
            config = read_json(root / folder / CONFIG_FILE, MODEL_FILE)
        except (OSError, ValueError):
            continue
        if not isinstance(config, dict) or config.get(SETTING) is not True:
            return None
        is_sure = OBEYING_CLASSES.fullmatch(str(config.get("tokenizer_class"))) is not None
        return _EosSetting(None, f"{SETTING}: true in {folder}/{CONFIG_FILE}", is_sure)
    return None
