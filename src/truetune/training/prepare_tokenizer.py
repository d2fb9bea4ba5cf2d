"""Makes the tokenizer of a run: with the ids that were encoded, a pad that is no stop, and the
template that was trained.

Rows are encoded with tokenizer.json, trainers and servers take a class of transformers. Both are compared on texts
where such classes differ, and on rows of the data; a class that gives other ids is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import transformers

from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import TokenizerError, UsageError
from truetune.render.choose_pad_token import choose_pad_token
from truetune.render.template_probes import ANSWER, QUESTION, Probes, alternating_chat
from truetune.settings.run_spec import RunSpec
from truetune.training.training_recipe import Choice

ADDED_PAD = "<|pad|>"
"""Added where no token of the vocabulary can pad"""
# Leading spaces, line breaks, scripts, emoji, tabs, numbers and control-like text: the parts that
# slow and fast tokenizers, and classes with their own pre-tokenizers, treat differently.
TRIAL_TEXTS = (
    " begins with a space", "  and two", "\n\nlines\n", "na\u00efve \u65e5\u672c\u8a9e \u9f98 \U0001fae0 \u1680",
    "if x:\n\treturn 1,234.50", "don't <b>&amp;</b> ", "",
)  # fmt: skip
"""Where tokenizers that should be the same differ"""
# Chosen, not measured: rows of the data itself find what the built-in texts miss; more only cost
# time at each start.
TRIAL_ROWS = 20


def prepare_tokenizer(probes: Probes, spec: RunSpec) -> tuple[Any, list[Choice]]:
    """A transformers tokenizer that gives the ids of `probes`. Raises TokenizerError where none does."""
    tokenizer, choices = _load_tokenizer_class_with_same_ids(
        probes,
        [*TRIAL_TEXTS, *_template_texts_of_short_chats(probes), *_first_message_contents(spec)],
    )
    for name, token in spec.training.special_tokens.items():
        # convert_tokens_to_ids gives the unknown token's id for a stranger, so that the vocabulary
        # is asked too.
        if tokenizer.convert_tokens_to_ids(token) is None or token not in tokenizer.get_vocab():
            raise UsageError(
                f"training.special_tokens: {name} is {token}, which the vocabulary does not hold; "
                "name it under training.added_tokens too"
            )
        setattr(tokenizer, name, token)
    choices += _choose_pad_token(tokenizer, probes)
    if spec.template is not None and probes.template is not None:
        # Saved with the weights, so that serving asks in the form that was trained. Another
        # template at serving is the fault that docs/start.md measures.
        tokenizer.chat_template = probes.template.source
        choices.append(
            Choice(
                "chat_template",
                spec.template,
                "the template of the training, saved with the tokenizer",
            )
        )
    return tokenizer, choices


def first_text_with_different_ids(
    tokenizer: Any, probes: Probes, texts: Iterable[str]
) -> str | None:
    """The first text that gets other ids than in encoding; None where all get the same."""
    backend = probes.tokenizer.backend
    # Once with special tokens: a class that adds BOS where the file does not would shift every row
    # by one.
    if tokenizer("x")["input_ids"] != backend.encode("x").ids:
        return "x"
    for text in texts:
        if (
            tokenizer(text, add_special_tokens=False)["input_ids"]
            != backend.encode(text, add_special_tokens=False).ids
        ):
            return text
    return None


def _load_tokenizer_class_with_same_ids(
    probes: Probes, texts: list[str]
) -> tuple[Any, list[Choice]]:
    """The first class of transformers that gives the ids of tokenizer.json. Raises TokenizerError."""
    folder = str(probes.tokenizer.folder)
    reason = None
    # AutoTokenizer first, for its class is the one that users will load. Some classes rebuild the
    # pipeline in code and disagree with tokenizer.json; the plain class takes the file as it is.
    for kind in (transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast):
        try:
            tokenizer = kind.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError, AttributeError, ImportError) as error:
            reason = reason or f"transformers can't load it: {str(error).splitlines()[0]}"
            continue
        other = first_text_with_different_ids(tokenizer, probes, texts)
        if other is None:
            why = f"{reason}; this class gives the ids of tokenizer.json"
            return tokenizer, (
                [Choice("tokenizer class", type(tokenizer).__name__, why)] if reason else []
            )
        reason = f"{type(tokenizer).__name__} gives other ids for {other[:40]!r}"
    raise TokenizerError(
        f"{folder}: no class of transformers gives the ids of tokenizer.json ({reason})"
    )


def _choose_pad_token(tokenizer: Any, probes: Probes) -> Iterator[Choice]:
    """Choose a pad token that no stop token and no text uses, and pad on the right."""
    was = tokenizer.pad_token
    if "pad_token" not in probes.spec.training.special_tokens:
        pad, why = choose_pad_token(probes.tokenizer, probes.stops)
        # A new token would need a new row of the embedding, which an adapter does not train and a
        # server that loads the adapter alone does not have.
        if pad is None and _adapter_embedding_lacks_spare_row(probes):
            tokenizer.pad_token = was or tokenizer.eos_token
            why = (
                "no token is free, and an adapter has no row for a new one; masks go by place: no"
                " label is lost"
            )
        elif pad is None:
            tokenizer.add_special_tokens({"pad_token": ADDED_PAD})
        else:
            tokenizer.pad_token = pad.token
        if tokenizer.pad_token != was:
            yield Choice(
                "pad_token",
                tokenizer.pad_token,
                why if was is None else f"{why}; {was} is not free",
            )
    # On the right, positions of a row begin at 0 as they do without padding. Models whose positions
    # count from the left edge would otherwise see others in training than when served.
    if tokenizer.padding_side != "right":
        yield Choice(
            "padding_side",
            "right",
            f"it was {tokenizer.padding_side}; generation sets left for itself",
        )
        tokenizer.padding_side = "right"


def _adapter_embedding_lacks_spare_row(probes: Probes) -> bool:
    """Is an adapter trained, on an embedding without a row to spare?"""
    training, tokenizer = probes.spec.training, probes.tokenizer
    adapts = training.lora is not None or training.adapter is not None
    return adapts and (tokenizer.embedding_rows or 0) <= tokenizer.vocabulary


def _template_texts_of_short_chats(probes: Probes) -> Iterator[str]:
    """The texts that the template makes of a chat of one turn, and of one of two."""
    for messages in (
        alternating_chat(QUESTION, ANSWER),
        alternating_chat(QUESTION, f" {ANSWER}", QUESTION, ANSWER),
    ):
        text = probes.text(messages)
        if text is not None:
            yield text


def _first_message_contents(spec: RunSpec) -> Iterator[str]:
    """Contents of the first rows of the data."""
    for row in islice(
        read_conversations(spec.data, format=spec.format, columns=spec.map), TRIAL_ROWS
    ):
        for message in row.messages or ():
            content = message.get("content")
            if isinstance(content, str):
                yield content
