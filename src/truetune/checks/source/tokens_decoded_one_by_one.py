"""Each token of an answer is decoded separately: spaces, and letters made of several tokens, are lost.

## What it does
Looks for `tokenizer.decode` of a single id inside a loop that picks one token after another (`argmax`, `multinomial`),
if the results are yielded, printed or joined. It does not fire if the text so far is decoded as a whole, or if a
streamer of transformers does it.

## Why it is bad
A token is a piece of bytes, not a word. SentencePiece tokenizers (Llama 2, Mistral, Gemma, T5) drop the space before
the first token that they decode, so all words run together. Non-Latin letters and emojis take two or three tokens, each
of which decodes to a replacement character.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")


def stream(ids, past=None):
    for _ in range(200):
        out = model(ids, past_key_values=past, use_cache=True)
        past, ids = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
        yield tokenizer.decode([ids.item()])
```

## Use instead
```python
from threading import Thread

from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")


def stream(inputs):
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    Thread(target=model.generate, kwargs=dict(**inputs, streamer=streamer, max_new_tokens=200)).start()
    yield from streamer
```

## Fix safety
There is no automatic fix. Without a streamer: keep all ids, decode them together at each step, and output only the new
text. The model's tokens stay the same.

## References
- huggingface/transformers#22710; transformers `TextStreamer.put`, which waits for whole words
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOOPS = (ast.For, ast.While)
PICKS = ("argmax", "multinomial", "topk")


def _decodes_in_loop(module: Module) -> Iterator[Call]:
    """Calls of a tokenizer's `decode` in a loop that picks tokens."""
    for call in module.methods("decode"):
        if call.receiver is None or "tokenizer" not in module.flow.types(call.receiver):
            continue
        loop = next((one for one in module.parents(call.node) if isinstance(one, LOOPS)), None)
        if loop is not None and any(f".{name}(" in module.text_of(loop) for name in PICKS):
            yield call


class TokensDecodedOneByOne(SourceRule):
    code = "SRC132"
    fault = Fault.TOKENIZER_DISTORTS_TEXTS
    severity = "warning"
    looks_at = CodePlaces("calls of decode in loops that pick tokens", _decodes_in_loop)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # transformers' streamers hold a piece back until its character is whole.
        if module.mentions("Streamer"):
            return
        for call in _decodes_in_loop(module):
            ids = call.argument(0, "token_ids")
            if (
                ids is not None
                and _is_single_id(module, ids)
                and _is_piece_yielded_printed_or_added(module, call.node)
            ):
                yield self.finding(
                    "each token is decoded separately: spaces between words, and letters made of several tokens, are"
                    " lost",
                    "keep all ids, decode them together at each step and output only the new text; or pass a"
                    " TextIteratorStreamer to model.generate",
                    cases=[case_of_node(module, call.node)],
                )


def _is_single_id(module: Module, ids: ast.expr) -> bool:
    """Is the argument one id: `[next_id.item()]`, `next_id.item()`, or what `argmax` has just
    picked?
    """
    if isinstance(ids, ast.List):
        return len(ids.elts) == 1 and not isinstance(ids.elts[0], ast.Starred)
    text = module.text_of(ids)
    if text.endswith(".item()"):
        return True
    origins = [origin.node for origin in module.flow.origins(ids)]
    return bool(origins) and all(
        isinstance(one, ast.Call) and module.flow.call(one).method in PICKS for one in origins
    )


def _is_piece_yielded_printed_or_added(module: Module, node: ast.AST) -> bool:
    """Is the piece yielded, printed without a line's end, or added to others?"""
    statement = module.statement(node)
    around = list(module.parents(node))
    if any(isinstance(one, ast.Yield | ast.AugAssign) for one in around):
        return True
    text = module.text_of(statement) if statement is not None else ""
    if any(sign in text for sign in ("end=", ".append(", ".write(")):
        return True
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    loop = next((one for one in around if isinstance(one, LOOPS)), None)
    # A piece that is printed as it is has its own line, where half a character is seen at once.
    if loop is None:
        return False
    name, uses = statement.targets[0].id, module.text_of(loop)
    return any(sign in uses for sign in (f"+= {name}", f"yield {name}", f"append({name})"))
