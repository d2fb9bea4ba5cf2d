"""The tokenizer of a run: the ids that were encoded, a pad that is no stop, and the template that was trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import transformers

from truetune.data.rows import read_conversations
from truetune.errors import TokenizerError, UsageError
from truetune.render.pad_token import choose_pad_token
from truetune.render.probes import ANSWER, QUESTION, Probes, chat
from truetune.spec.run import RunSpec
from truetune.training.recipe import Choice

PAD = "<|pad|>"
"""Added where no token of the vocabulary can pad"""
TEXTS = (
    " begins with a space", "  and two", "\n\nlines\n", "na\u00efve \u65e5\u672c\u8a9e \u9f98 \U0001fae0 \u1680",
    "if x:\n\treturn 1,234.50", "don't <b>&amp;</b> ", "",
)  # fmt: skip
"""Where tokenizers that should be the same differ"""
ROWS = 20


def tokenizer_of(probes: Probes, spec: RunSpec) -> tuple[Any, list[Choice]]:
    """A transformers tokenizer that gives the ids of `probes`. Raises TokenizerError where none does."""
    tokenizer, choices = _same(probes, [*TEXTS, *_rendered(probes), *_of_rows(spec)])
    for name, token in spec.training.special_tokens.items():
        if tokenizer.convert_tokens_to_ids(token) is None or token not in tokenizer.get_vocab():
            raise UsageError(
                f"training.special_tokens: {name} is {token}, which the vocabulary does not hold; "
                "name it under training.added_tokens too"
            )
        setattr(tokenizer, name, token)
    choices += _padded(tokenizer, probes)
    if spec.template is not None and probes.template is not None:
        tokenizer.chat_template = probes.template.source
        choices.append(
            Choice(
                "chat_template",
                spec.template,
                "the template of the training, saved with the tokenizer",
            )
        )
    return tokenizer, choices


def same_ids(tokenizer: Any, probes: Probes, texts: Iterable[str]) -> str | None:
    """The first text that gets other ids than in encoding; None where all get the same."""
    backend = probes.tokenizer.backend
    if tokenizer("x")["input_ids"] != backend.encode("x").ids:
        return "x"
    for text in texts:
        if (
            tokenizer(text, add_special_tokens=False)["input_ids"]
            != backend.encode(text, add_special_tokens=False).ids
        ):
            return text
    return None


def _same(probes: Probes, texts: list[str]) -> tuple[Any, list[Choice]]:
    folder = str(probes.tokenizer.folder)
    found = None
    for kind in (transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast):
        try:
            tokenizer = kind.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError, AttributeError, ImportError) as error:
            found = found or f"transformers can't load it: {str(error).splitlines()[0]}"
            continue
        other = same_ids(tokenizer, probes, texts)
        if other is None:
            why = f"{found}; this class gives the ids of tokenizer.json"
            return tokenizer, (
                [Choice("tokenizer class", type(tokenizer).__name__, why)] if found else []
            )
        found = f"{type(tokenizer).__name__} gives other ids for {other[:40]!r}"
    raise TokenizerError(
        f"{folder}: no class of transformers gives the ids of tokenizer.json ({found})"
    )


def _padded(tokenizer: Any, probes: Probes) -> Iterator[Choice]:
    """Choose a pad, on the right: a place that no stop token and no text takes."""
    was = tokenizer.pad_token
    if "pad_token" not in probes.spec.training.special_tokens:
        pad, why = choose_pad_token(probes.tokenizer, probes.stops)
        if pad is None and _full(probes):
            tokenizer.pad_token = was or tokenizer.eos_token
            why = (
                "no token is free, and an adapter has no row for a new one; masks go by place: no"
                " label is lost"
            )
        elif pad is None:
            tokenizer.add_special_tokens({"pad_token": PAD})
        else:
            tokenizer.pad_token = pad.token
        if tokenizer.pad_token != was:
            yield Choice(
                "pad_token",
                tokenizer.pad_token,
                why if was is None else f"{why}; {was} is not free",
            )
    if tokenizer.padding_side != "right":
        yield Choice(
            "padding_side",
            "right",
            f"it was {tokenizer.padding_side}; generation sets left for itself",
        )
        tokenizer.padding_side = "right"


def _full(probes: Probes) -> bool:
    """Is an adapter trained, on an embedding without a row to spare?"""
    training, tokenizer = probes.spec.training, probes.tokenizer
    adapts = training.lora is not None or training.adapter is not None
    return adapts and (tokenizer.embedding_rows or 0) <= tokenizer.vocabulary


def _rendered(probes: Probes) -> Iterator[str]:
    for messages in (chat(QUESTION, ANSWER), chat(QUESTION, f" {ANSWER}", QUESTION, ANSWER)):
        text = probes.text(messages)
        if text is not None:
            yield text


def _of_rows(spec: RunSpec) -> Iterator[str]:
    """Contents of the first rows of the data."""
    for row in islice(read_conversations(spec.data, format=spec.format, columns=spec.map), ROWS):
        for message in row.messages or ():
            if isinstance(content := message.get("content"), str):
                yield content
