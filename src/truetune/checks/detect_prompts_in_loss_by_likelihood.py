"""Tells whether training made the prompts likelier as well as the answers, which shows that labels
were on the prompts.

Measured with SmolLM2-135M-Instruct on 10 chats that it had not seen, after 12 steps of 2 other chats at 1e-4: with
labels on the prompts these gained 3.00 nats/token, without -0.11.
"""

from __future__ import annotations

# Chosen, not measured: below, the gain of a prompt is that of knowing the language of the answers better.
LEAST = 0.2
"""Nats/token that the prompts gain at least"""
# Chosen, not measured. Prompts whose labels are masked gain from the answers beside them too, but far less than
# those.
SHARE = 0.5
"""Of what the answers gain"""
SURE = 2.4
"""Standard errors above 0, as of other differences between a model and its base"""
HELP = (
    "set the labels of the prompts to -100 (completion_only_loss, assistant_only_loss,"
    " train_on_inputs: false) unless they are meant to be learned; truetune run -- COMMAND shows"
    " what is supervised"
)


def have_prompts_gained_like_answers(prompt: float, answer: float, error: float) -> bool:
    """Have the prompts gained (nats/token over the base) as answers do? `error` is the prompts' standard error."""
    return prompt >= LEAST and prompt > SURE * error and prompt >= SHARE * answer
