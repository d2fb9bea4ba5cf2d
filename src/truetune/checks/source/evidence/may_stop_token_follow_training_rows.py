"""Says whether anything in a file may put a stop token after the rows that it encodes for a
training.

A stop token has many spellings, so the question is turned round: a file in which nothing names one
puts none there. The trade-off: a file that names an EOS for another reason is left alone.
"""

from __future__ import annotations

import ast
import re

from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

STOP_WORDS = re.compile(
    r"eos|eot|end_?of|im_end|sep_token|stop_?token|end_token|endoftext|</s>|<\||<\uff5c|<end|special_tokens_map|"
    r"convert_tokens_to_ids|chat_template|TemplateProcessing|post_processor|all_special",
    re.I,
)
"""Names and texts that may put a stop token behind a row, or make one known"""
PAD_OR_STOP_SETTINGS = frozenset(
    (
        "pad_token",
        "pad_token_id",
        "eos_token",
        "eos_token_id",
        "padding_side",
        "unk_token",
        "bos_token",
    )
)
"""What a stop token is set for, without being put behind any row"""
FINISHED_COLUMNS = frozenset(
    (
        "text",
        "texts",
        "prompt",
        "content",
        "formatted",
        "formatted_text",
        "conversation",
        "chat",
        "messages",
    )
)
"""Columns that may hold finished rows"""
NO_EOS_APPENDED = re.compile(
    r"llama|qwen|qwq|mistral|mixtral|gemma|smollm|gpt-?2|gpt-?neo|gpt-j|pythia|phi-|falcon|tinyllama|deepseek|/yi-|"
    r"olmo|granite|mpt-|bloom|stablelm",
    re.I,
)
"""Families of causal models whose tokenizers encode a text without EOS (encode('hello') compared, as published)"""
LIGHTNING_STEP = "training_step"
"""The method by which a module of Lightning trains"""
CAUSAL = (
    "transformers.AutoModelForCausalLM.*",
    "transformers.*ForCausalLM*",
    "unsloth.Fast*Model.from_pretrained",
)
OTHER_TRAINERS = (
    "trl.DPOTrainer",
    "trl.GRPOTrainer",
    "trl.KTOTrainer",
    "trl.ORPOTrainer",
    "trl.RewardTrainer",
    "trl.PPOTrainer",
)


def all_model_families_append_no_eos(module: Module) -> bool:
    """Are all models that a file names of families whose tokenizers append no EOS?"""
    names = {
        name
        for part in module.self_and_files_run_together
        for call in part.calls("*.from_pretrained")
        for name in possible_texts(part, _loaded_name_argument(call))
        if "/" in name
    }
    return bool(names) and all(NO_EOS_APPENDED.search(name) for name in names)


def _loaded_name_argument(load: Call) -> ast.expr | None:
    """The name of what is loaded."""
    named = load.argument(0, "pretrained_model_name_or_path")
    return named if named is not None else load.keywords.get("model_name")


def may_append_stop_token(module: Module) -> bool:
    """May anything in a file put a stop token behind a row?"""
    for node in module.nodes(ast.Attribute, ast.Name, ast.Constant, ast.arg, ast.keyword):
        word = _name_or_text_of(node)
        if (
            not word
            or not STOP_WORDS.search(word)
            or _is_padding_generation_or_docstring_mention(module, node)
        ):
            continue
        if not _template_ends_before_answer(module, node) and not _switches_eos_off(module, node):
            return True
    return _adds_list_of_token_ids(module)


def _adds_list_of_token_ids(module: Module) -> bool:
    """Is a list of numbers of tokens added anywhere: `ids + [2]`?"""
    for node in module.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Add):
            continue
        for side in (node.left, node.right):
            if isinstance(side, ast.List) and side.elts and all(map(_is_token_id, side.elts)):
                return True
    return False


def trains_causal_model_on_own_rows(module: Module) -> bool:
    """Does a file train a causal model on rows that nobody else makes ready?"""
    if any(module.calls(*OTHER_TRAINERS)):
        return False
    # TRL's own SFTTrainer appends EOS to texts, and leaves ids alone.
    if any(module.calls("trl.*SFTTrainer", "unsloth.*Trainer")):
        return True
    if not any(module.calls(*CAUSAL)):
        return False
    if any(module.calls("transformers.Trainer")) or any(module.methods("backward")):
        return True
    return any(
        one.name == LIGHTNING_STEP
        for one in module.nodes(ast.FunctionDef)
        if isinstance(module.scopes.parent.get(one), ast.ClassDef)
    )


def _template_ends_before_answer(module: Module, node: ast.AST) -> bool:
    """Does a chat template end the text where the answer begins: `apply_chat_template(...,
    add_generation_prompt=True)`?
    """
    around = module.scopes.parent.get(node)
    if not isinstance(node, ast.Attribute) or not isinstance(around, ast.Call):
        return False
    add_generation_prompt_argument = module.flow.call(around).keywords.get("add_generation_prompt")
    return (
        node.attr == "apply_chat_template"
        and module.flow.value(add_generation_prompt_argument) is True
    )


def _switches_eos_off(module: Module, node: ast.AST) -> bool:
    """Does a keyword switch the tokenizer's EOS off: `add_eos_token=False`?"""
    is_switch = isinstance(node, ast.keyword) and node.arg == "add_eos_token"
    return is_switch and module.flow.value(getattr(node, "value", None)) is False


def _name_or_text_of(node: ast.AST) -> str:
    """The name or text of a node, in which a stop token may be named."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.arg | ast.keyword):
        return node.arg or ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_padding_generation_or_docstring_mention(module: Module, node: ast.AST) -> bool:
    """Does a stop token stand where a pad is chosen or a generation told when to stop, or is it a
    docstring?
    """
    if isinstance(node, ast.keyword):
        return node.arg in PAD_OR_STOP_SETTINGS
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr in PAD_OR_STOP_SETTINGS
    for around in module.parents(node):
        decided = _does_context_show_token_ends_no_row(node, around)
        if decided is not None:
            return decided
    return False


def _does_context_show_token_ends_no_row(node: ast.AST, around: ast.AST) -> bool | None:
    """Does one of the nodes around a stop token say that the token ends no row: is a pad chosen
    there, a stop set, the token compared, or is it a docstring?

    False where the statement says otherwise; None where the node says nothing.
    """
    if isinstance(around, ast.keyword):
        return True if around.arg in PAD_OR_STOP_SETTINGS else None
    if isinstance(around, ast.Compare):
        return True
    if isinstance(around, ast.Expr):
        return around.value is node
    if isinstance(around, ast.Dict):
        return any("pad" in ast.unparse(key) for key in filter(None, around.keys))
    if isinstance(around, ast.Assign):
        names = {target.attr for target in around.targets if isinstance(target, ast.Attribute)}
        return not PAD_OR_STOP_SETTINGS.isdisjoint(names)
    return False if isinstance(around, ast.stmt) else None


def _is_token_id(node: ast.expr) -> bool:
    """Is it the number of a token, and no mask of 0 and 1?"""
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 1
