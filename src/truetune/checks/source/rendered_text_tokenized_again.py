"""Text rendered by the chat template is tokenized with special tokens, which adds them a second time.

## What it does
Traces the text that `apply_chat_template(..., tokenize=False)` returns to a tokenizer call without
`add_special_tokens=False`. It warns if a named model, or the base that its name contains, is known to write BOS in both
(Llama 2 and 3, Mistral, Gemma, Cohere); one of several models is enough. If the model is unknown, it is info, and only
reported for training rows. Text that is passed to vLLM's `LLM.generate` counts as well: the engine tokenizes it with
special tokens. It is an error if such text is sent to a server as the content of a message
(`client.chat.completions.create`): the server applies its template to it again. It does not report processors, and
models of which only one or none of the two writes BOS (Qwen, gpt-oss, Phi, Zephyr, ...).

## Why it is bad
The template writes BOS, and the tokenizer adds it again: the model sees two in training or serving. One report lost 6
points of its score.

## Example
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
ids = tokenizer(text, return_tensors="pt")
```

## Use instead
```python
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
```

## Fix safety
Safe if the template writes the special tokens that the model needs, as nearly all do. If the tokenizer adds none,
nothing changes.

## References
- huggingface/trl#1400, OpenRLHF/OpenRLHF#393, vllm-project/vllm#2012, LiveCodeBench/LiveCodeBench#146
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.double_bos import (
    BosCount,
    GivenChatTemplate,
    bos_count_of_rendered_text,
)
from truetune.checks.source.evidence.is_training_row_code import makes_training_rows
from truetune.checks.source.evidence.text_generation_calls import VLLM_ENGINE
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import set_keyword
from truetune.source.parsed_source_file import Module

WITH_SPECIALS = ("encode", "encode_plus", "batch_encode_plus")
CHAT_REQUESTS = ("chat.completions.create", "chat.completions.parse")
OF_PROCESSORS = ("images", "image", "audio", "audios", "videos", "sampling_rate")
"""Arguments that a tokenizer does not take: what is called is a processor"""


def _tokenizer_calls_and_texts(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Calls of a tokenizer on a text, with the text."""
    processors = _names_called_with_media(module)
    for call in module.all_calls:
        text = call.argument(0, "text")
        if text is not None and _is_tokenizer_call(module, call, processors):
            yield call, text


def _engine_calls_and_texts(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """Calls of vLLM's `generate`, which tokenizes with special tokens, with the texts that it is given."""
    for call in module.methods("generate"):
        texts = call.argument(0, "prompts")
        made = module.flow.producing_call(call.receiver) if texts is not None else None
        # An engine may be told to make no tokens of its own.
        if texts is None or made is None or "skip_tokenizer_init" in made.keywords:
            continue
        if made.named(VLLM_ENGINE):
            yield call, texts


def _tokenized_texts_and_sent_messages(module: Module) -> Iterator[object]:
    """Texts that a tokenizer or an engine is given, and contents of messages for a server; what the
    rule looks at.
    """
    yield from _tokenizer_calls_and_texts(module)
    yield from _engine_calls_and_texts(module)
    yield from _message_contents_sent_to_servers(module)


class RenderedTextTokenizedAgain(SourceRule):
    code = "SRC009"
    fault = Fault.SPECIAL_TOKENS_DOUBLED_OR_MISPLACED
    symptoms = ("garbage-output", "odd-metrics")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces("texts that are tokenized or sent", _tokenized_texts_and_sent_messages)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_messages()
        template = GivenChatTemplate(module)
        for call, text in _tokenizer_calls_and_texts(module):
            if not call.lacks("add_special_tokens"):
                continue
            rendered = next(_rendering_calls(module, text), None)
            if rendered is None:
                continue
            bos = bos_count_of_rendered_text(
                module, call.receiver if call.method in WITH_SPECIALS else call.node.func, template
            )
            # BOS is known to come once, or nothing is known and the text trains nothing: a second BOS at inference
            # alone does little.
            if bos is BosCount.ONE or (
                bos is BosCount.UNKNOWN and not makes_training_rows(module, call.node)
            ):
                continue
            yield self.finding(
                "text rendered by apply_chat_template is tokenized with special tokens added: a"
                " second BOS" + (" if the template writes one" if bos is BosCount.UNKNOWN else ""),
                "set add_special_tokens=False in this tokenizer call, or let apply_chat_template"
                " tokenize (tokenize=True)",
                severity=self.severity if bos is BosCount.TWO else "info",
                evidence=[
                    f"rendered in line {module.place(rendered)[0]}",
                    (
                        "both the tokenizer and the chat template of a model that the script"
                        " names write BOS"
                        if bos is BosCount.TWO
                        else "it is not known whether this model's tokenizer and template write BOS"
                    ),
                ],
                cases=[case_of_node(module, call.node), case_of_node(module, rendered)],
                fix=fix_of_changes(
                    module, set_keyword(module, call, "add_special_tokens", "False")
                ),
            )

        yield from self._findings_on_engines(template)

    def _findings_on_engines(self, template: GivenChatTemplate) -> Iterator[Finding]:
        """Findings on rendered texts that vLLM tokenizes with special tokens."""
        module = self.subject
        for call, texts in _engine_calls_and_texts(module):
            rendered = next(_rendering_calls(module, texts), None)
            if rendered is None or not isinstance(rendered.func, ast.Attribute):
                continue
            home = module.home(rendered)
            if bos_count_of_rendered_text(home, rendered.func.value, template) is BosCount.TWO:
                yield self.finding(
                    "text rendered by apply_chat_template is passed to LLM.generate, which adds special tokens: a"
                    " second BOS",
                    'pass the messages to llm.chat(...), or pass ids: llm.generate([{"prompt_token_ids":'
                    " tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)}, ...])",
                    evidence=[
                        f"rendered in line {home.place(rendered)[0]}",
                        "both the tokenizer and the chat template of a model that the script names write BOS",
                    ],
                    cases=[case_of_node(module, call.node), case_of_node(module, rendered)],
                )

    def _findings_on_messages(self) -> Iterator[Finding]:
        """Findings on rendered text that a server gets as a message, around which it writes its
        template again.
        """
        module = self.subject
        for content in _message_contents_sent_to_servers(module):
            rendered = next(_rendering_calls(module, content), None)
            if rendered is not None:
                yield self.finding(
                    "text rendered by apply_chat_template is sent as the content of a message: the server applies its"
                    " chat template to it again",
                    "send the messages themselves to client.chat.completions.create, or the rendered text to"
                    " client.completions.create",
                    severity="error",
                    cases=[case_of_node(module, content), case_of_node(module, rendered)],
                )


def _message_contents_sent_to_servers(module: Module) -> Iterator[ast.expr]:
    """The contents of messages that clients send to chat servers."""
    for call in module.methods("create", "parse"):
        messages = call.keywords.get("messages")
        if messages is None or not ast.unparse(call.node.func).endswith(CHAT_REQUESTS):
            continue
        for origin in module.flow.origins(messages):
            for message in origin.node.elts if isinstance(origin.node, ast.List) else ():
                content = module.flow.dict_entries_and_if_complete(message)[0].get("content")
                if content is not None:
                    yield content


def _is_tokenizer_call(module: Module, call: Call, processors: frozenset[str]) -> bool:
    """Is a tokenizer called, and no processor of images or sound?"""
    called = call.receiver if call.method in WITH_SPECIALS else call.node.func
    kinds = module.flow.types(called)
    return (
        called is not None
        and "tokenizer" in kinds
        and "processor" not in kinds
        and module.text_of(called) not in processors
    )


def _names_called_with_media(module: Module) -> frozenset[str]:
    """The names of what is called in the file with images or sound, as they are written."""
    return frozenset(
        module.text_of(call.node.func)
        for call in module.all_calls
        if not call.keywords.keys().isdisjoint(OF_PROCESSORS)
    )


def _rendering_calls(module: Module, text: ast.expr) -> Iterator[ast.Call]:
    """The calls of apply_chat_template whose text this may be, alone or as the elements of a list."""
    for origin in module.flow.origins(text):
        node = origin.node
        parts = (
            node.elts
            if isinstance(node, ast.List)
            else [node.elt]
            if isinstance(node, ast.ListComp)
            else [node]
        )
        for part in parts:
            for source in module.flow.origins(part):
                source_node = source.node
                # `tokenize=True` gives ids, which nobody tokenizes again.
                if (
                    isinstance(source_node, ast.Call)
                    and module.flow.types(source_node) == {"chat"}
                    and not source.path
                ):
                    if (
                        module.flow.value(module.flow.call(source_node).keywords.get("tokenize"))
                        is False
                    ):
                        yield source_node
