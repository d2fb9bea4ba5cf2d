"""How the rows end that a script encodes for a training: is there anything that puts a stop token behind them?

A stop token has many spellings, so the question is turned round: a file in which nothing names one puts none there.
What is encoded has to be made in the files, for a column of finished texts may hold the token. The trade-off: a file
that names an EOS for another reason is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.labels_and_padding import holds_ignored_label
from truetune.checks.source.evidence.masked_labels import label_values
from truetune.checks.source.evidence.possible_values import possible_texts
from truetune.checks.source.evidence.prompt_forms import handwritten_prompts
from truetune.checks.source.evidence.training_row_code import makes_training_rows
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

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
ENCODES = ("encode", "encode_plus", "batch_encode_plus")
TIDYING = frozenset(("strip", "lstrip", "rstrip", "replace", "lower", "tolist", "title"))
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
# Chosen, not measured: a column, what tidies it, an f-string, a helper and a list take one step each.
DEPTH = 8


def encoded_row_texts(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The texts that a script encodes as rows of a causal model's training, each with the tokenizer's call."""
    if not _trains_causal_model(module):
        return
    for part in module.with_linked:
        yield from _encoded_texts_of_file(part)


def _encoded_texts_of_file(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The texts that one file encodes as rows of training."""
    for call in module.all_calls:
        # `self.tok(text)` looks like a method, and calls the tokenizer that the object keeps.
        called = call.receiver if call.method in ENCODES else call.node.func
        text = call.argument(0, "text")
        if called is None or text is None or "tokenizer" not in module.flow.types(called):
            continue
        if makes_training_rows(module, call.node) and not _only_measures(module, call):
            yield call, text


def encodes_answers(module: Module) -> bool:
    """Do the rows hold prompts with answers: labels that hide a part, or a prompt that is written by hand?"""
    return any(
        any(handwritten_prompts(part))
        or any(_hides_a_part(part, *one) for one in label_values(part))
        for part in module.with_linked
    )


def _hides_a_part(module: Module, node: ast.AST, labels: ast.expr) -> bool:
    """Is there a -100 in labels, or in the function that makes them?"""
    function = module.scopes.of[node].node
    return holds_ignored_label(module, labels) or holds_ignored_label(module, function)


def appends_no_eos(module: Module) -> bool:
    """Are all models that a file names of families whose tokenizers append no EOS?"""
    names = {
        name
        for part in module.with_linked
        for call in part.calls("*.from_pretrained")
        for name in possible_texts(part, call.argument(0, "pretrained_model_name_or_path"))
        if "/" in name
    }
    return bool(names) and all(NO_EOS_APPENDED.search(name) for name in names)


def may_end_rows(module: Module) -> bool:
    """May anything in a file put a stop token behind a row?"""
    for node in module.nodes(ast.Attribute, ast.Name, ast.Constant, ast.arg, ast.keyword):
        word = _word_of(node)
        if word and STOP_WORDS.search(word) and not _is_about_pads(module, node):
            return True
    # `ids + [2]`: a token by its number.
    return any(
        isinstance(side, ast.List)
        and bool(side.elts)
        and all(_is_token_id(one) for one in side.elts)
        for node in module.nodes(ast.BinOp)
        if isinstance(node.op, ast.Add)
        for side in (node.left, node.right)
    )


def is_text_of_the_files(module: Module, node: ast.AST, depth: int = DEPTH) -> bool:
    """Is it seen how a text is made, and is it no column that may hold a finished row?"""
    if depth == 0:
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    parts = _parts_of_composed(node)
    if parts is not None:
        return all(is_text_of_the_files(module, part, depth - 1) for part in parts)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        # A part of a text, as where the prompt ends and the answer begins.
        return is_text_of_the_files(module, node.value, depth - 1)
    if isinstance(node, ast.Subscript):
        return _is_unfinished_column(module, node.slice)
    if isinstance(node, ast.Call) and _is_tidied(module, node, depth):
        return True
    return _has_known_origins(module, node, depth)


def _parts_of_composed(node: ast.AST) -> list[ast.expr] | None:
    """What an f-string, a sum or a list is made of; None of any other node."""
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    return [node.elt] if isinstance(node, ast.ListComp | ast.GeneratorExp) else None


def _is_unfinished_column(module: Module, name: ast.expr) -> bool:
    """Is it the name of a column, and of none that may hold a finished row?"""
    key = module.flow.value(name)
    return isinstance(key, str) and key not in FINISHED_COLUMNS


def _has_known_origins(module: Module, node: ast.AST, depth: int) -> bool:
    """Is all that an expression stands for a text of the files?"""
    origins = module.flow.origins(node)
    if not origins or any(one.node is node for one in origins):
        return False
    return all(
        _is_column_element(module, one.node, depth)
        if one.element
        else not one.path and is_text_of_the_files(module, one.node, depth - 1)
        for one in origins
    )


def _is_column_element(module: Module, node: ast.AST, depth: int) -> bool:
    """Is it one of a column: `for q, a in zip(batch["q"], batch["a"])`, `for q in batch["q"]`?"""
    columns = (
        node.args if isinstance(node, ast.Call) and module.flow.name(node.func) == "zip" else [node]
    )
    return bool(columns) and all(is_text_of_the_files(module, one, depth - 1) for one in columns)


def _is_tidied(module: Module, node: ast.Call, depth: int) -> bool:
    """`row["a"].strip()`, `TEMPLATE.format(**row)`, `row.get("a", "")`, `str(row["a"])`."""
    call = module.flow.call(node)
    if call.method == "get" and node.args:
        return _is_unfinished_column(module, node.args[0])
    if call.method in ("format", "join") and call.receiver is not None:
        return is_text_of_the_files(module, call.receiver, depth - 1)
    if call.method in TIDYING and call.receiver is not None:
        return is_text_of_the_files(module, call.receiver, depth - 1)
    return (
        call.named("str")
        and bool(node.args)
        and is_text_of_the_files(module, node.args[0], depth - 1)
    )


def _trains_causal_model(module: Module) -> bool:
    """Does a file train a causal model on rows that nobody else makes ready?"""
    if any(module.calls(*OTHER_TRAINERS)) or not any(module.calls(*CAUSAL)):
        return False
    if any(module.calls("transformers.Trainer")) or any(module.methods("backward")):
        return True
    if any(
        one.name == LIGHTNING_STEP
        for one in module.nodes(ast.FunctionDef)
        if isinstance(module.scopes.parent.get(one), ast.ClassDef)
    ):
        return True
    # SFTTrainer appends EOS to texts, and leaves ids alone.
    return any(module.calls("trl.SFTTrainer")) and any(
        any(label_values(part)) for part in module.with_linked
    )


def _only_measures(module: Module, call: Call) -> bool:
    """Is the length of what is encoded all that is asked for: `len(tokenizer(text).input_ids)`?"""
    for around in module.parents(call.node):
        if isinstance(around, ast.Call):
            return module.flow.name(around.func) == "len"
        if not isinstance(around, ast.Attribute | ast.Subscript):
            return False
    return False


def _word_of(node: ast.AST) -> str:
    """The name or text of a node, in which a stop token may be named."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.arg | ast.keyword):
        return node.arg or ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_about_pads(module: Module, node: ast.AST) -> bool:
    """Does a stop token stand where a pad is chosen or a generation told when to stop, or is it a docstring?"""
    if isinstance(node, ast.keyword):
        return node.arg in PAD_OR_STOP_SETTINGS
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr in PAD_OR_STOP_SETTINGS
    for around in module.parents(node):
        decided = _decides_on_pads(node, around)
        if decided is not None:
            return decided
    return False


def _decides_on_pads(node: ast.AST, around: ast.AST) -> bool | None:
    """What one of the nodes around a stop token says of it; None where it says nothing."""
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
