"""States what is known of the tokenizers of published models by the models' names.

BOS, pad, and rows of the embedding that no token has.

A file names its model, and whoever wrote it knows what that model's tokenizer does. The facts are
of the tokenizers as they are published, found by running them, or read from their files
(`established`). A name is compared by its last part, so a folder with a copy of a published model
is known too; a fine-tune whose name only holds that of its base is not, because it may bring a
template of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from truetune.cached_for_one_call import cached_for_one_call
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.errors import TokenizerError
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.source.parsed_source_file import Module

MEASURED = (
    "encode('hello') compared with and without special tokens, and the rendering of one question"
    " read"
)
KEPT_BY_FINE_TUNES = "fine-tunes keep the tokenizer of their base"
FROM_PUBLISHED_FILES = "read from the published tokenizer and config files"


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models with one tokenizer. None: not known, or not the same in all of them."""

    name: str
    """A pattern for the beginning of the model's name, in lower case, with `-` for every other sign"""
    established: str
    adds_bos: bool | None = None
    """The tokenizer writes BOS by itself"""
    template_writes_bos: bool | None = None
    """The chat template writes BOS; None for base models, which have no template of their own"""
    has_pad: bool | None = None
    """It has a pad token, and that is not its EOS"""
    spare_rows: int | None = None
    """Rows of the embedding that no token of the tokenizer has: at least so many"""
    eos: str | None = None
    """Its EOS token, where rows are known that end otherwise"""
    completed_by_code: bool = False
    """Its tokenizer's file lacks tokens of its own, which every user adds by hand"""


FAMILIES = (
    ModelFamily("qwen2-5-(0-5b|1-5b|3b)", MEASURED, False, False, has_pad=True, spare_rows=271),
    ModelFamily(
        "qwen3-(0-6b|1-7b|4b|8b|14b|32b|30b)", MEASURED, False, False, has_pad=True, spare_rows=267
    ),
    ModelFamily("(qwen|qwq)", MEASURED, False, False, has_pad=True, spare_rows=85),
    ModelFamily("gpt-oss", MEASURED, False, False, has_pad=True),
    ModelFamily("phi-?4", MEASURED, False, False, has_pad=True),
    ModelFamily("phi-?3", MEASURED, False, False),
    ModelFamily("smollm2", MEASURED, False, True, spare_rows=0),
    ModelFamily("smollm", MEASURED, False),
    ModelFamily("(openai-)?gpt2", MEASURED, False, spare_rows=0),
    ModelFamily(
        "(meta-)?llama-?3(-[123])?-.*instruct",
        MEASURED,
        True,
        True,
        has_pad=False,
        spare_rows=0,
        eos="<|eot_id|>",
    ),
    ModelFamily(
        "(meta-)?llama-?3", MEASURED, True, has_pad=False, spare_rows=0, eos="<|end_of_text|>"
    ),
    ModelFamily("llama-?2-.*chat", MEASURED, True, True, has_pad=False, spare_rows=0),
    ModelFamily("llama-?2", MEASURED, True, has_pad=False, spare_rows=0),
    ModelFamily(
        "mistral-7b-instruct|mistral-nemo-instruct",
        MEASURED,
        True,
        True,
        has_pad=False,
        spare_rows=0,
    ),
    ModelFamily("mistral-7b|mistral-nemo", MEASURED, True, has_pad=False, spare_rows=0),
    ModelFamily("gemma-2-.*it", MEASURED, True, True, has_pad=True, spare_rows=0),
    ModelFamily("gemma-.*it", MEASURED, True, True, has_pad=True),
    ModelFamily("gemma-", MEASURED, True, has_pad=True),
    ModelFamily(
        "mixtral-.*instruct", FROM_PUBLISHED_FILES, True, True, has_pad=False, spare_rows=0
    ),
    ModelFamily("codellama-.*instruct", FROM_PUBLISHED_FILES, True, True, has_pad=False),
    ModelFamily(
        "(c4ai-command|command-r|aya|tiny-aya)", FROM_PUBLISHED_FILES, True, True, has_pad=True
    ),
    ModelFamily("(tinyllama|zephyr)", FROM_PUBLISHED_FILES, True, False),
    ModelFamily("bloom", FROM_PUBLISHED_FILES, False, has_pad=True, spare_rows=200),
    ModelFamily("(flan-)?t5-", FROM_PUBLISHED_FILES, False, has_pad=True, spare_rows=28),
    ModelFamily("yuan2", "read from its published example code", completed_by_code=True),
)
"""The first pattern that fits holds. Not in it: DeepSeek, whose `add_bos_token` transformers 4 obeys and 5 does not."""

# A fine-tune keeps the tokenizer of its base far more often than its template or its size: only those facts are kept.
FINE_TUNES = (
    ModelFamily("deepseek", KEPT_BY_FINE_TUNES),
    ModelFamily("gemma", KEPT_BY_FINE_TUNES, True, True, has_pad=True),
    ModelFamily("llama-?3.*instruct", KEPT_BY_FINE_TUNES, True, True),
    ModelFamily("llama-?3", KEPT_BY_FINE_TUNES, True),
    ModelFamily("(qwen|qwq)", KEPT_BY_FINE_TUNES, False, has_pad=True),
)
"""What is kept where a name holds one of these words. DeepSeek gives models of other families its own tokenizer."""


def family_of_model(name: str) -> ModelFamily | None:
    """What is known of a model by its name on the hub or its folder; None where it is none of
    these.
    """
    return next(
        (known for known in FAMILIES if re.match(known.name, normalized_model_name(name))), None
    )


def family_named_in_derivative(name: str) -> ModelFamily | None:
    """What is known of a model whose own name holds that of a published family:
    `me/Reward-Gemma-2-27B`; None otherwise.
    """
    return next(
        (
            known
            for known in FINE_TUNES
            if re.search(f"(^|-){known.name}", normalized_model_name(name))
        ),
        None,
    )


CHATS_OF_QWEN = re.compile(r"qwen-?(1-5|2|2-5)-.*(instruct|chat)|qwen3-(?!.*base)")
"""Names of Qwen's chat models, whose EOS is `<|im_end|>`: read from the published tokenizer configs. Their bases, which
end a text with `<|endoftext|>`, are of the same families."""


def eos_of_model(name: str) -> str | None:
    """The EOS token of a published model by its name; None where it is not known."""
    if CHATS_OF_QWEN.match(normalized_model_name(name)):
        return "<|im_end|>"
    family = family_of_model(name)
    return family.eos if family is not None else None


def normalized_model_name(name: str) -> str:
    """The last part of a model's name or path, in lower case, with `-` for every sign that is no
    letter or digit.
    """
    return re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].lower())


def families_of_tokenizer(module: Module, tokenizer: ast.expr | None) -> list[ModelFamily | None]:
    """What is known of each model that a tokenizer may be of; empty where no model is named.

    Where the tokenizer comes from outside the file, or from a folder that the file itself writes,
    those of all models that the file loads from elsewhere.
    """
    written = _folders_saved_to(module)
    names = [name for name in model_names_of_tokenizer(module, tokenizer) if name not in written]
    return [
        family_of_model(name)
        for name in names or (name for name in _names_of_all_models(module) if name not in written)
    ]


def likely_families_of_tokenizer(
    module: Module, tokenizer: ast.expr | None
) -> list[ModelFamily | None]:
    """What is known of each model that a tokenizer is likely of: also of fine-tunes by their base,
    and by default names.

    For facts that hold for fine-tunes too, and where a likely model is enough: not for counts of
    tokens.
    """
    return [
        family_of_model(name) or family_named_in_derivative(name)
        for name in likely_model_names(module, tokenizer)
    ]


def likely_model_names(module: Module, tokenizer: ast.expr | None) -> list[str]:
    """The names that the model of a tokenizer may have, with defaults, entries and elements."""
    written = _folders_saved_to(module)
    names = _possible_texts_of(module, model_name_arguments(module, tokenizer))
    if not any(name not in written for name in names):
        names = _possible_texts_of(module, _model_arguments_of_loads_and_trainers(module))
    return [name for name in dict.fromkeys(names) if name not in written]


def _possible_texts_of(module: Module, nodes: Iterable[ast.expr]) -> list[str]:
    """All texts that these expressions may be."""
    return [name for node in nodes for name in possible_texts(module.home(node), node)]


def vocabulary_of_local_tokenizer_folder(
    module: Module, tokenizer: ast.expr | None
) -> frozenset[str]:
    """The tokens of the tokenizer that is loaded, where its folder is on this machine; else none."""
    found: frozenset[str] = frozenset()
    for name in model_names_of_tokenizer(module, tokenizer):
        try:
            found |= _tokens_in_folder(find_tokenizer_folder(name))
        except (TokenizerError, OSError, ValueError):
            continue
    return found


@cached_for_one_call
def _tokens_in_folder(folder: Path) -> frozenset[str]:
    """The tokens in a folder's tokenizer.json, added ones too."""
    whole = read_json(folder / "tokenizer.json", MODEL_FILE)
    if not isinstance(whole, dict):
        return frozenset()
    added = whole.get("added_tokens")
    model = whole.get("model")
    words = model.get("vocab") if isinstance(model, dict) else None
    names = (
        [token.get("content") for token in added if isinstance(token, dict)]
        if isinstance(added, list)
        else []
    )
    return frozenset((*map(str, names), *(words if isinstance(words, dict) else ())))


def model_names_of_tokenizer(module: Module, tokenizer: ast.expr | None) -> list[str]:
    """The names that the tokenizer is loaded by."""
    values = (module.flow.value(node) for node in model_name_arguments(module, tokenizer))
    return [value for value in values if isinstance(value, str) and value]


def model_name_arguments(module: Module, tokenizer: ast.expr | None) -> Iterator[ast.expr]:
    """The arguments that name the model where the tokenizer is loaded."""
    for origin in module.flow.origins(tokenizer) if tokenizer is not None else ():
        if isinstance(origin.node, ast.Call) and origin.path in ((), (1,)):
            call = module.flow.call(origin.node)
            model_name_argument = call.argument(
                0, "pretrained_model_name_or_path"
            ) or call.keywords.get("model_name")
            if model_name_argument is not None:
                yield model_name_argument


def _folders_saved_to(module: Module) -> set[str]:
    """The folders that the file saves models and checkpoints to."""
    return {
        text
        for part in module.self_and_files_run_together
        for node in _folder_arguments_of_saves(part)
        for text in possible_texts(part, node)
    }


def _folder_arguments_of_saves(module: Module) -> Iterator[ast.expr | None]:
    """What names the folders that a file saves to; None where a call leaves it out."""
    yield from (call.argument(0, "save_directory") for call in module.methods("save_pretrained"))
    yield from (call.argument(0, "output_dir") for call in module.methods("save_model"))
    yield from (call.keywords.get("output_dir") for call in module.all_calls)


def _names_of_all_models(module: Module) -> Iterator[str]:
    """The names that models and trainers are given in the file."""
    values = (module.flow.value(node) for node in _model_arguments_of_loads_and_trainers(module))
    yield from (value for value in values if isinstance(value, str) and value)


def _model_arguments_of_loads_and_trainers(module: Module) -> Iterator[ast.expr]:
    """What names the models that the file loads or trains."""
    for call in (
        call
        for part in module.self_and_files_run_together
        for call in part.calls("*.from_pretrained", "trl.*Trainer")
    ):
        if call.named("*Config.from_pretrained", "peft.*"):
            continue
        given = call.argument(0, "model") or call.argument(0, "pretrained_model_name_or_path")
        given = given or call.keywords.get("model_name")
        if given is not None:
            yield given
