"""Parses prompts that were saved as the model got them, with a chat template's markup, into their
messages.

LLaMA-Factory's predictions and many loops of one's own keep `<|im_start|>user ...<|im_end|>` or `### Instruction:`. The
question is what the last user said; the rest is no part of what was asked. A text is taken apart only where it ends in
the header of an answer that is still to come, so that a question about templates stays as it is.
"""

from __future__ import annotations

import re

Messages = tuple[dict[str, str], ...]
# One alternative for each family of templates, each with the role as its group. What only looks
# like a header must not be one: words as `User:` count at the beginning of a line alone.
_HEADER = re.compile(
    r"<\|im_start\|>[ ]*(?P<chatml>\w+)\n"
    r"|<\|start_header_id\|>(?P<llama>\w+)<\|end_header_id\|>\s*"
    r"|<start_of_turn>(?P<gemma>\w+)\n"
    r"|<\|(?P<bars>system|user|assistant)\|>\n?"
    r"|<｜(?P<deepseek>User|Assistant)｜>"
    r"|\[(?P<inst>/?INST)\]"
    r"|(?:^|(?<=\s))\#{2,3}["
    r" ]?(?P<hashes>Instruction|Input|Response|Human|Assistant|User|System)\b:?[ ]*\n?"
    r"|(?:^|(?<=\s))(?P<capitals>USER|ASSISTANT):"
    r"|^(?P<words>Human|Assistant|User|System|Question|Answer|Q|A)(?::|：)[ ]?"
    r"|^(?P<bare>system|user|assistant|model)\n",
    re.MULTILINE,
)
"""What begins a turn, with its role; the last one is what is left where the control tokens were not decoded"""
_CONTROL = re.compile(
    r"<\|(?:im_end|eot_id|end|endoftext|begin_of_text|eom_id|return)\|>|<end_of_turn>|<(?:bos|eos|pad)>|</?s>|"
    r"<<SYS>>.*?<</SYS>>|<｜(?:begin|end)▁of▁sentence｜>|\[PAD\]|</?think>",
    re.DOTALL,
)
_STOP = r"<\|(?:im_end|eot_id|end|endoftext|eom_id|return)\|>|<end_of_turn>|<eos>|</s>|<｜end▁of▁sentence｜>"
_STOPPED = re.compile(_STOP)
_TAIL = re.compile(rf"(?:(?:{_STOP}|<pad>|\[PAD\]|<\|finetune_right_pad_id\|>)\s*)+\Z")
_ROLES = {
    **dict.fromkeys(("user", "human", "instruction", "input", "inst", "question", "q"), "user"),
    **dict.fromkeys(("assistant", "model", "response", "/inst", "answer", "a"), "assistant"),
}


def parse_rendered_chat(text: str) -> Messages | None:
    """The turns of a text that a chat template rendered, without the header of the answer; None if
    it is no such text.
    """
    headers = list(_HEADER.finditer(text))
    # One header may be a quotation; a rendered prompt has the question's and the answer's.
    if len(headers) < 2:
        return None
    ends = [*(header.start() for header in headers[1:]), len(text)]
    turns = [
        (_role_of_header(header), _CONTROL.sub("", text[header.end() : end]).strip())
        for header, end in zip(headers, ends, strict=True)
    ]
    # The empty header of the answer is the proof that a template wrote this; a question about
    # templates lacks it.
    if turns[-1] != ("assistant", "") or not any(
        role == "user" and text_of_turn for role, text_of_turn in turns
    ):
        return None
    return tuple(_messages_with_equal_roles_joined(turns[:-1]))


def find_user_header_inside_text(text: str) -> tuple[int, str] | None:
    """The position of a user's header that comes after other text, and the header; None if there is
    none.
    """
    for header in _HEADER.finditer(text):
        # With text before it, it is a turn that the model wrote itself, behind its own answer.
        if _role_of_header(header) == "user" and text[: header.start()].strip():
            return header.start(), header[0].strip()
    return None


def cut_stop_tokens_and_say_if_found(text: str) -> tuple[str, bool | None]:
    """The text without the stop tokens and pads at its end, and True if there was a stop token;
    None if there was none.
    """
    tail = _TAIL.search(text)
    if tail is None:
        return text, None
    return text[: tail.start()], True if _STOPPED.search(tail[0]) else None


def _role_of_header(header: re.Match[str]) -> str:
    """The role that a header names, in OpenAI's words."""
    # The only group that matched names the family, and holds the role.
    name = header[str(header.lastgroup)].casefold()
    return _ROLES.get(name, name)


def _messages_with_equal_roles_joined(turns: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Messages of (role, text) turns; neighbours of one role (an instruction and its input) are
    joined.
    """
    messages: list[dict[str, str]] = []
    for role, text in turns:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n{text}"
        else:
            messages.append({"role": role, "content": text})
    return [message for message in messages if message["content"]]
