"""Finds models that a fine-tuning run trains from random weights, by the symbolic run of the
script.

How it works: each model that is trained, by a trainer or by an optimizer of the script's own, is
followed back to the call that made it. `from_config(config)` and `LlamaForCausalLM(config)` make
random weights; the config is followed to the pretrained model that it was read from.

The trade-off: who trains from scratch on purpose does the same with another aim. So a sign of
fine-tuning is asked for, and any sign of the other aim ends the search: sizes of one's own, a
tokenizer that is trained in the run or comes from a folder, and the words that people use for it.
Whatever may load weights ends it too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.optimizers_before_adapters import (
    ADAPTER_WRAPPERS,
    NO_OPTIMIZERS,
    OPTIMIZER_CLASSES,
    models_of_parameters,
)
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    family_named_in_derivative,
    family_of_model,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import Lineage, lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    StoreEvent,
    Trace,
    is_constant_none,
)
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Constant,
    Item,
    Option,
    Result,
    Value,
)

RANDOM_MODELS = (
    "transformers.*Model*.from_config",
    "transformers.*._from_config",
    "transformers.*ForCausalLM",
    "transformers.*LMHeadModel",
    "transformers.*ForConditionalGeneration",
    "transformers.*ForSequenceClassification",
)
"""Calls that make a model of a config alone"""
CONFIG_LOADS = ("transformers.*Config.from_pretrained",)
MODEL_LOADS = ("transformers.*.from_pretrained",)
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
TUNING_TRAINERS = ("trl.*Trainer",)
TUNING_CALLS = (*ADAPTER_WRAPPERS, "peft.prepare_model_for_kbit_training")
TOKENIZER_LOADS = ("transformers.*Tokenizer*.from_pretrained",)
TOKENIZER_TRAININGS = ("tokenizers.*", "sentencepiece.SentencePieceTrainer.*")
KEYS_OF_CONFIG_LOADS = frozenset(
    (
        "attn_implementation",
        "cache_dir",
        "force_download",
        "id2label",
        "label2id",
        "local_files_only",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretrained_model_name_or_path",
        "problem_type",
        "revision",
        "token",
        "torch_dtype",
        "dtype",
        "trust_remote_code",
        "use_auth_token",
        "use_cache",
    )
)
"""Arguments of a config's load, and attributes of a config, that leave the pretrained weights fit"""
ANSWER_COLUMNS = frozenset(
    (
        "answer",
        "chosen",
        "completion",
        "conversations",
        "instruction",
        "messages",
        "rejected",
        "response",
    )
)
"""Columns that rows of fine-tuning have, and texts of a pretraining have not"""
CHAT_MODEL = re.compile(r"(^|[-_.])(instruct|chat|it)([-_.]|$)", re.I)
FROM_SCRATCH = re.compile(
    r"pre-?train(?!ed)|(?<![/${])scratch(?![/}])|from[ _-]zero"
    r"|(random|re)[ _-]?init|random(ly)?[ _-]?(weights|initiali)",
    re.I,
)
"""What is said of a training from scratch on purpose, in code and comments"""
TUNING_WORD = re.compile(r"fine[ _-]?tun|(?<![a-z])(sft|dpo)(?![a-z])", re.I)
LOADS_WEIGHTS = re.compile(
    r"load|restore|resume|copy|init|assign|update|distill|merge|convert|swap"
)
"""Names of what may give a model its weights"""
NAMELESS_LOADS = ("copy_", "load_file", "load_checkpoint", "load_state", "load_state_dict")
"""A copy into a parameter, a file of tensors: they need not name the model"""
NO_LOADS = ("load_dataset", "load_metric", "load_from_disk", "load_adapter")
TEST_FILE = re.compile(r"(^|/)(tests?/[^/]*|test_[^/]*|conftest\.py|[^/]*_test\.py)$")
MAX_CONFIG_STEPS = 8
"""Copies and parts between a config and the call that reads it. Chosen by hand: beyond it nothing is
said of a model
"""


class RandomWeights(NamedTuple):
    """A model that is trained from random weights."""

    construction: CallEvent
    source: str
    """The pretrained model whose config was read; empty where only the run knows it"""
    sign: str
    """What says that this run fine-tunes"""


def fine_tuned_models_with_random_weights(module: Module) -> Iterator[RandomWeights]:
    """The models that a file makes with random weights and a fine-tuning run trains, each once."""
    seen: set[ast.AST] = set()
    if TEST_FILE.search(module.path):
        return
    for trace in traces_of_scripts_that_reach_file(module):
        for random_weights in _random_models_trained_in_run(trace):
            made = random_weights.construction
            if made.home.path == module.path and made.node not in seen:
                seen.add(made.node)
                yield random_weights


def _random_models_trained_in_run(trace: Trace) -> Iterator[RandomWeights]:
    """The random models that one run trains."""
    if (
        not any(trace.calls(*RANDOM_MODELS))
        or not trace.is_whole
        or _says_from_scratch_or_makes_tokenizer(trace)
    ):
        return
    for training, model in _trainings_with_models(trace):
        ways = [] if model is None else lineages_back_to_origins(model)
        call_event = _unconditional_random_model_call(ways)
        if call_event is None or _weights_may_be_loaded(trace, ways[0]):
            continue
        source = _pretrained_source(trace, call_event)
        sign = None if source is None else _sign_of_fine_tuning(trace, training, ways, source)
        if source is not None and sign is not None:
            yield RandomWeights(call_event, source, sign)


def _unconditional_random_model_call(ways: list[Lineage]) -> CallEvent | None:
    """The call that makes a model with random weights on every way, under no condition; None where
    there is none.
    """
    made = ways[0].call_that_gave_origin if ways else None
    if made is None or any(way.call_that_gave_origin is not made for way in ways):
        return None
    return made if made.named(*RANDOM_MODELS) and not any(made.frames("branch")) else None


def _trainings_with_models(trace: Trace) -> Iterator[tuple[CallEvent, Value | None]]:
    """What trains in a run, each with its model."""
    if any(trace.methods("train", "fit")):
        for trainer in trace.calls(*TRAINERS):
            yield trainer, trainer.argument(0, "model")
            if "model_init" in trainer.keywords:
                for _, model in trainer.returned_by_callbacks:
                    yield trainer, model
    if any(trace.methods("backward")) or any(trace.calls("*.backward")):
        for optimizer in trace.calls(*OPTIMIZER_CLASSES):
            for model in _models_of_optimizer(optimizer):
                yield optimizer, model
        for engine in trace.calls("deepspeed.initialize"):
            yield engine, engine.argument(1, "model")


def _models_of_optimizer(optimizer: CallEvent) -> list[Value]:
    """The models whose weights an optimizer holds; none where one is not known."""
    params_argument = optimizer.argument(0, "params")
    if params_argument is None or optimizer.named(*NO_OPTIMIZERS):
        return []
    return models_of_parameters(params_argument) or []


def _says_from_scratch_or_makes_tokenizer(trace: Trace) -> bool:
    """Does the run say that it trains from scratch, or make a tokenizer of its own?"""
    homes = {event.home for event in trace.events} | {trace.entry}
    if any(says_trained_from_scratch(home.path, home.text) for home in homes):
        return True
    if any(trace.methods("train_new_from_iterator")) or any(trace.calls(*TOKENIZER_TRAININGS)):
        return True
    names = [
        constant_of(load.argument(0, "pretrained_model_name_or_path"))
        for load in trace.calls(*TOKENIZER_LOADS)
    ]
    return bool(names) and all(
        isinstance(name, str) and _is_local_folder_of_unpublished_model(name) for name in names
    )


def says_trained_from_scratch(path: str, text: str) -> bool:
    """Does a file, or its name, say that a model is trained from scratch?"""
    return any(FROM_SCRATCH.search(said) for said in (path.rpartition("/")[2], text))


def _is_local_folder_of_unpublished_model(name: str) -> bool:
    """Is it a folder of one's own, and no copy of a published model?"""
    is_local = name.startswith((".", "/", "~")) or name.count("/") != 1
    return is_local and family_of_model(name) is None and family_named_in_derivative(name) is None


def _pretrained_source(trace: Trace, call_event: CallEvent) -> str | None:
    """The pretrained model whose config a random model has; None where it is a config of one's own."""
    load = _load_of_unchanged_config_or_its_model(trace, call_event.argument(0, "config"))
    if load is None:
        return None
    # Of a model's load nothing but its config is used, whatever else it is given.
    is_model = load.named(*MODEL_LOADS) and not load.named(*CONFIG_LOADS)
    if not is_model and (load.is_open or not KEYS_OF_CONFIG_LOADS.issuperset(load.keywords)):
        return None
    name = constant_of(load.argument(0, "pretrained_model_name_or_path"))
    if not isinstance(name, str):
        return ""
    return None if _is_local_folder_of_unpublished_model(name) and not is_model else name


def _load_of_unchanged_config_or_its_model(trace: Trace, value: Value | None) -> CallEvent | None:
    """The call that reads a config, or the model that it is of; None where its sizes are set on the
    way.
    """
    for _ in range(MAX_CONFIG_STEPS):
        if value is None or _config_is_changed(trace, value):
            return None
        inner = _value_config_is_part_or_copy_of(value)
        if inner is None:
            break
        value = inner
    is_load = isinstance(value, Result) and value.call.named(*CONFIG_LOADS, *MODEL_LOADS)
    return value.call if is_load and isinstance(value, Result) else None


def _value_config_is_part_or_copy_of(value: Value) -> Value | None:
    """What a config is a part or a copy of; None where it is neither."""
    if isinstance(value, Option):
        return value.default
    if isinstance(value, Attribute) and value.name in ("config", "text_config"):
        return value.base
    if isinstance(value, Item):
        return value.base
    if isinstance(value, Result) and value.call.named("copy.*") and value.call.args:
        return value.call.args[0]
    return None


def _config_is_changed(trace: Trace, config: Value) -> bool:
    """Is a config changed, so that the pretrained weights may not fit it?"""
    for use in trace.uses(config):
        if isinstance(use, StoreEvent) and use.base is config:
            if use.key not in KEYS_OF_CONFIG_LOADS:
                return True
        elif isinstance(use, CallEvent) and use.named("setattr"):
            name = constant_of(use.argument(1, "name"))
            if not isinstance(name, str) or name not in KEYS_OF_CONFIG_LOADS:
                return True
        elif isinstance(use, CallEvent) and use.receiver is config:
            return True
    return False


def _weights_may_be_loaded(trace: Trace, way: Lineage) -> bool:
    """May anything of the run load weights into a model?"""
    own = {id(way.origin), *(id(step.result) for step in way.steps)}
    if any(store.key == "data" for store in trace.stores):
        return True
    return any(
        _resumes_from_checkpoint(call) or _call_may_load_weights(call, own)
        for call in trace.all_calls
    )


def _call_may_load_weights(call: CallEvent, own: set[int]) -> bool:
    """May a call give weights to the model that these values are?"""
    name = call.method or (call.names[0].rpartition(".")[2] if call.names else "")
    if name in NAMELESS_LOADS:
        return True
    is_load = LOADS_WEIGHTS.search(name.lower()) and name not in NO_LOADS
    return bool(is_load) and any(_is_model_or_wrapper(value, own) for value in call.inputs)


def _resumes_from_checkpoint(call: CallEvent) -> bool:
    """Does a trainer begin with the weights of a checkpoint?"""
    if call.method != "train":
        return False
    resume_from_checkpoint_argument = call.argument(0, "resume_from_checkpoint")
    return (
        resume_from_checkpoint_argument is not None
        and not is_constant_none(resume_from_checkpoint_argument)
        and constant_of(resume_from_checkpoint_argument) is not False
    )


def _is_model_or_wrapper(value: Value, own: set[int]) -> bool:
    """Is a value the model, one of its wrappers, or an attribute of either?"""
    while isinstance(value, Attribute | Item):
        value = value.base
    if id(value) in own:
        return True
    return isinstance(value, Result | Choice) and any(
        id(way.origin) in own for way in lineages_back_to_origins(value)
    )


def _sign_of_fine_tuning(
    trace: Trace, training: CallEvent, ways: list[Lineage], source: str
) -> str | None:
    """What says that a run fine-tunes; None where nothing does."""
    adapter = training.argument(-1, "peft_config")
    is_adapted = any(way.has_step(*TUNING_CALLS) for way in ways)
    if is_adapted or (adapter is not None and not is_constant_none(adapter)):
        return "an adapter is put on it"
    if training.named(*TUNING_TRAINERS):
        return f"{training.names[0].rpartition('.')[2]} trains it"
    if CHAT_MODEL.search(source.rpartition("/")[2]):
        return f"{source} is a chat model"
    return _sign_of_question_answer_rows(trace) or fine_tuning_word_in_text(
        training.home.path, training.home.text
    )


def _sign_of_question_answer_rows(trace: Trace) -> str | None:
    """What says that the rows of a run are questions and answers; None where nothing does."""
    if any(trace.methods("apply_chat_template")):
        return "the rows are written by a chat template"
    keys = {
        constant_of(value.key)
        for value in trace.values
        if isinstance(value, Item) and isinstance(value.key, Constant)
    }
    columns = sorted(ANSWER_COLUMNS.intersection(keys))
    return f"its rows hold {', '.join(columns)}" if columns else None


def fine_tuning_word_in_text(path: str, text: str) -> str | None:
    """The word by which a file, or its name, says that it fine-tunes; None where it says nothing of
    it.
    """
    words = TUNING_WORD.search(path.rpartition("/")[2]) or TUNING_WORD.search(text)
    return f"the file mentions {words[0]!r}" if words else None
