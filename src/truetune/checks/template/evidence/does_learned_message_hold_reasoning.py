"""Tells whether a message that is to be learned holds reasoning, whichever key or tag it stands in."""

from __future__ import annotations

from truetune.data.conversation import Message
from truetune.render.template import REASONING_KEYS
from truetune.render.unfilled_example_plan import THINK_END


def holds_reasoning(message: Message) -> bool:
    """Does a turn that is to be learned hold reasoning?

    Datasets write it under a key of its own (`reasoning_content`) or inside of the content, closed by `</think>`. The
    closing tag alone is looked for: Qwen's and DeepSeek's templates write the opening one into the prompt.
    """
    if not message.get("train", True):
        return False
    if any(message.get(key) for key in REASONING_KEYS):
        return True
    content = message.get("content")
    return isinstance(content, str) and THINK_END in content
