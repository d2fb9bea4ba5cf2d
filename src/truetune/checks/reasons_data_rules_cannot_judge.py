"""Reasons why rules on data, tokenizer and template can't judge, in the same words everywhere.

A need that something unlocks names that flag or file. One that begins with `it is about` has nothing to unlock: the
rule does not apply to this kind of data.
"""

from __future__ import annotations

from truetune.checks.judgement import Unmet
from truetune.data.count_media import Media
from truetune.render.template_probes import Probes

NO_EXAMPLE = Unmet(
    "no row gave an example", "fix the rows that template-rejects-rows or malformed-rows names"
)
PROMPTS_ALONE = Unmet(
    "it is about answers that are learned, and the training samples its own from the prompts"
)
NO_CHATS = Unmet("it is about chats, and no row is one")
NO_PLAIN_ROWS = Unmet("it is about rows of plain text, and there are none")
NO_TURNS = Unmet("it is about assistant turns, and no example has one")
NO_TURN_TRAINED_ALONE = Unmet(
    "it is about assistant turns that are trained by themselves, and no example has one: what is"
    " trained is the whole example, or nothing"
)
NO_PAIRS = Unmet("it is about pairs of answers, and the rows hold none")
NO_VERDICTS = Unmet("it is about KTO's labels, and no row has one")
NO_CONTROL_TOKENS = Unmet("it is about control tokens, and the tokenizer has none")
NO_TEMPLATE = Unmet("the tokenizer has no chat template", "name one with --template")
NOT_BY_TAGS = Unmet(
    "the mask is not taken from {% generation %} tags", "say --mask-by generation-tags if it is"
)
NO_LIMIT = Unmet("no max_length is set", "set it with --max-length")
NO_TURN_END = Unmet(
    "the chat template ends turns with no control token", "see turn-terminator-is-not-eos"
)
NO_STOPS = Unmet("no token is known to end turns", "set eos_token_id in generation_config.json")
COUNT_IN_BATCHES = "see what reaches the loss: truetune run -- YOUR COMMAND"
NO_EMBEDDING = Unmet(
    "neither config.json nor weights say how many rows the embedding has",
    "name the model with --model",
)
PROBES_FAIL = Unmet(
    "the chat template renders no small conversation of a question and an answer",
    "choose one with --template",
)


def explain_missing_template(probes: Probes) -> Unmet | None:
    """Why nothing is known of the chat template; None where it renders a question and an answer."""
    if probes.template is None:
        return NO_TEMPLATE
    return PROBES_FAIL if probes.terminator is None else None


def explain_unknown_turn_end(probes: Probes) -> Unmet | None:
    """Why it is not known with which token the chat template ends turns; None where it is."""
    lacking = explain_missing_template(probes)
    if lacking is not None:
        return lacking
    # The assertion is for type checkers: a template without a terminator has failed the probes.
    assert probes.terminator is not None, "explain_missing_template would have said so"
    return NO_TURN_END if probes.terminator.token is None else None


def explain_uncounted_tokens(media: Media, *, is_named: bool) -> Unmet | None:
    """Why lengths can't be judged where rows hold images, sound or video; None where they hold none.

    `is_named`: the user set the limit that the lengths are compared with.
    """
    if not media:
        return None
    return Unmet(media.note_on_lengths, COUNT_IN_BATCHES, asked=is_named)
