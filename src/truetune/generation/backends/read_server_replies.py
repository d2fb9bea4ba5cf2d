"""Reads what a server's reply says: the answer's text, ids, end and log-probability, and what a reader must know of
it.

A reply is read by what it holds, and not by whose it is. Ids of the tokens are taken where a server tells them; else
the text is encoded again, which may give other ids than the model wrote. Reasoning and tool calls, which servers take
out of the text, are put back as the tokenizer's template writes them, where that can be proved by the rendering; else
as `<think>` and JSON, which is said (`is_guess`).

The trade-off: an answer that is known roughly is used and its doubts are told in notes
(`note_on_differing_server_prompt`, `notes_on_misleading_answers`), rather than refused. Only what holds no answer, or
ended for a reason that is neither a stop nor the limit, is none.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truetune.errors import TemplateError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.http_client import first_choice, list_field, usage_count
from truetune.generation.backends.server_prompt_ids import id_list
from truetune.generation.build_prompts import make_decoder
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.render.template import Template
from truetune.render.tokenizer import Tokenizer
from truetune.render.traced_string import plain_text

STOP_REASONS = frozenset(
    {"stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls", "function_call"}
)
"""`finish_reason` of an answer that ended by itself: OpenAI's words, and those of other servers"""
LIMIT_REASONS = frozenset({"length", "max_tokens"})
"""The same of one that was cut"""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put what they take out as reasoning: vLLM's and SGLang's name, and the newer one of both"""
UNKNOWN_STOP = -1
"""Stands for a stop token whose id nothing tells"""
ZERO_LOGPROB = 1e-9
"""A log-probability that is no larger for any token is that of a distribution without a doubt: greedy decoding's own,
and not the model's. A model that is sure has 1e-4 and less of a token, but not of all; float32 rounds below 1e-7."""
MAX_EXTRA_TOKENS = 1
"""More than the limit, which no server is blamed for: some count the stop token on top"""
OTHER_PROMPTS = "the server makes other prompts than the template of the tokenizer's folder"


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One reply, read."""

    answer: Answer
    has_server_ids: bool
    """The ids are the server's, not those of our own encoding of its text."""
    completion_count: int | None
    """Tokens that the server counts, stop token among them"""
    prompt_ids: list[int] | None
    prompt_count: int | None
    is_guess: bool
    """Reasoning or tool calls were taken out of the text, and their place in it is a guess."""
    all_certain: bool
    """Its log-probabilities are all 0."""


Answered = Sequence[tuple[Prompt, ChatReply]]


class ReplyReader:
    """Reads replies with one tokenizer and its template.

    Attributes:
        tokenizer: of the model, for ids that a server does not tell.
        decode: ids to text, control tokens shown.
        template: writes reasoning and tool calls as the model does; None where there is none, or it can't be compiled.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.decode = tokenizer, make_decoder(tokenizer)
        source = tokenizer.templates.get("default")
        special = {f"{name}_token": token.token for name, token in tokenizer.special.items()}
        # Replies are read in the threads that ask, and a template's environment is not made for several.
        self._template_lock = threading.Lock()
        self.template = _compile_template_or_none(source, special) if source else None

    def read(self, body: Any, prompt: Prompt, stops: frozenset[int], limit: int) -> ChatReply | str:
        """Read one reply.

        Args:
            body: the JSON of a chat or a completion.
            prompt: what was asked.
            stops: ids that end an answer.
            limit: tokens that were asked for at most.

        Returns:
            What it answers; why not, in words, where it is no answer.
        """
        choice = first_choice(body)
        message = choice.get("message") or {"content": choice.get("text")}
        if not choice or not isinstance(message, dict):
            return f"its reply holds no answer: {json.dumps(body)[:200]}"
        completion_count = usage_count(body, "completion_tokens")
        reason = _finish_reason_told_by_server(choice, completion_count, limit)
        if not isinstance(reason, str) or reason not in STOP_REASONS | LIMIT_REASONS:
            # A filter of contents, an error in the middle: what there is of the answer is not the model's.
            return f"its answer ended for the reason {reason!r}"
        ids, logprobs = _token_ids(choice), _token_logprobs(choice)
        stop = self._stop_id(choice, ids, prompt, stops) if reason in STOP_REASONS else None
        answer_ids, text, is_guess = self._ids_text_and_whether_guessed(message, prompt, ids, stop)
        all_certain = _are_all_logprobs_zero(logprobs)
        mean = math.fsum(logprobs) / len(logprobs) if logprobs and not all_certain else None
        prompt_ids = id_list(body, "prompt_token_ids") or id_list(choice, "prompt_token_ids")
        return ChatReply(
            Answer(tuple(answer_ids), text, stop, logprob=mean),
            ids is not None,
            completion_count,
            prompt_ids or None,
            usage_count(body, "prompt_tokens"),
            is_guess,
            all_certain,
        )

    def _ids_text_and_whether_guessed(
        self, message: Mapping[str, Any], prompt: Prompt, ids: list[int] | None, stop: int | None
    ) -> tuple[list[int], str, bool]:
        """The ids without the stop token, the text, and whether these are a guess. `ids` are the
        server's, where it tells them.

        The server's ids come before its text, which is without control tokens and may have lost white space.
        """
        if ids is None:
            text, is_guess = self._model_text_and_whether_guessed(message, prompt)
            return (
                list(self.tokenizer.backend.encode(text, add_special_tokens=False).ids),
                text,
                is_guess,
            )
        # Servers tell the stop token among the ids, or leave it out.
        answer_ids = ids[:-1] if ids and ids[-1] == stop else ids
        return answer_ids, self.decode(answer_ids), False

    def stop_id_where_server_tells_none(self, prompt: Prompt, stops: frozenset[int]) -> int:
        """The stop id that a server means that tells none: the trained one, else the tokenizer's."""
        last = prompt.reference_ids[-1:]
        if last and (last[0] in stops or last[0] in self.tokenizer.control):
            return last[0]
        eos = self.tokenizer.special.get("eos")
        return (
            eos.id if eos and (eos.id in stops or not stops) else min(stops, default=UNKNOWN_STOP)
        )

    def _stop_id(
        self,
        choice: Mapping[str, Any],
        ids: list[int] | None,
        prompt: Prompt,
        stops: frozenset[int],
    ) -> int:
        """The id at which an answer ended: as vLLM tells it, by the last of its ids, else the usual one."""
        reason = choice.get("stop_reason")
        if type(reason) is int and 0 <= reason < self.tokenizer.vocabulary:
            return reason
        if ids and ids[-1] in stops | self.tokenizer.control:
            return ids[-1]
        return self.stop_id_where_server_tells_none(prompt, stops)

    def _model_text_and_whether_guessed(
        self, message: Mapping[str, Any], prompt: Prompt
    ) -> tuple[str, bool]:
        """The answer as the model wrote it, as the template writes it; and whether that is a guess."""
        content = str(message.get("content") or "")
        reasoning = next((str(message[name]) for name in REASONING_FIELDS if message.get(name)), "")
        raw_calls = list_field(message, "tool_calls")
        calls = [_parse_arguments(call) for call in raw_calls if isinstance(call, dict)]
        if not reasoning and not calls:
            return content, False
        rendered = self._render_answer(_assistant_message(content, reasoning, calls), prompt)
        # Templates may drop reasoning or contents (those of earlier turns, or fields they do not know): only a
        # rendering that holds all of it is the model's text.
        if rendered is not None and content in rendered and reasoning.strip() in rendered:
            return rendered, False
        thought = f"<think>\n{reasoning.strip()}\n</think>\n\n" if reasoning else ""
        lines = [content, *map(json.dumps, calls)]
        return thought + "\n".join(filter(None, lines)), True

    def _render_answer(self, answer: dict[str, Any], prompt: Prompt) -> str | None:
        """What the template writes behind the prompt for an answer, up to its stop token; None where that is not clear.

        `answer` is a message.
        """
        if self.template is None or prompt.chat is None:
            return None
        chat = prompt.chat
        messages, tools = [*map(dict, chat.messages), answer], list(map(dict, chat.tools)) or None
        try:
            with self._template_lock:
                rendering = self.template.render(messages, tools=tools, **chat.settings)
        except TemplateError:
            return None
        text = plain_text(rendering)
        # Templates that rewrite history make another beginning: where the answer starts is not known then.
        if not text.startswith(prompt.text):
            return None
        stop = self.stop_id_where_server_tells_none(prompt, frozenset())
        if stop == UNKNOWN_STOP:
            return None
        return text[len(prompt.text) :].partition(self.decode([stop]))[0]


def note_on_differing_server_prompt(answered: Answered) -> Iterator[str]:
    """A sentence where the server's prompt is not the one that was meant, by its ids, else by their
    number.
    """
    other_ids = [
        (prompt, reply.prompt_ids)
        for prompt, reply in answered
        if reply.prompt_ids is not None and reply.prompt_ids != list(prompt.ids)
    ]
    other_counts = [
        (prompt, reply.prompt_count)
        for prompt, reply in answered
        if reply.prompt_ids is None and reply.prompt_count not in (None, len(prompt.ids))
    ]
    if other_ids:
        prompt, ids = other_ids[0]
        yield (
            f"{OTHER_PROMPTS}: {len(other_ids)} of {len(answered)}, that of"
            f" {prompt.file}:{prompt.line} from token {_first_difference(ids, prompt.ids)} on"
        )
    if other_counts:
        prompt, count = other_counts[0]
        yield (
            f"{OTHER_PROMPTS}: {len(other_counts)} of {len(answered)}, that of"
            f" {prompt.file}:{prompt.line} has {count} tokens there and {len(prompt.ids)} here"
        )


def notes_on_misleading_answers(answered: Answered, limit: int) -> Iterator[str]:
    """A sentence for each way in which answers are not what they seem. `limit`: tokens that were asked for at most."""
    replies = [reply for _, reply in answered]
    too_long = [
        reply for reply in replies if _token_count_of_answer(reply) > limit + MAX_EXTRA_TOKENS
    ]
    if too_long:
        yield (
            f"the server ignores `max_tokens`: {len(too_long)} answers have more than {limit} tokens"
        )
    guesses = sum(reply.is_guess for reply in replies)
    if guesses:
        yield (
            f"the server took reasoning or tool calls out of {guesses} answers: they are put back as"
            " <think> and as JSON, not as the model wrote them"
        )
    certain = sum(reply.all_certain for reply in replies)
    if certain:
        yield (
            f"the server's log-probabilities of {certain} answers are all 0, which no model means:"
            " they are not used"
        )
    hidden = [reply for reply in replies if _does_server_token_count_contradict_text(reply)]
    if hidden:
        yield (
            f"{len(hidden)} answers have other tokens than their text shows: the server counts"
            f" {hidden[0].completion_count}, the text has {len(hidden[0].answer.ids)}; it takes off"
            " control tokens or white space"
        )


def _first_difference(ids: Sequence[int], wanted: Sequence[int]) -> int:
    """Where two sequences differ first; the end of the shorter where one begins the other."""
    pairs = enumerate(zip(ids, wanted, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(ids), len(wanted)))


def _token_count_of_answer(reply: ChatReply) -> int:
    """The number of tokens of an answer, by the server's count or its ids; our own encoding of its
    text is no measure.
    """
    ids = len(reply.answer.ids) if reply.has_server_ids else 0
    return max(reply.completion_count or 0, ids)


def _does_server_token_count_contradict_text(reply: ChatReply) -> bool:
    """Does a server count other tokens than those of its text? Servers count with or without the stop token."""
    length = len(reply.answer.ids)
    counts = (None, length, length + (reply.answer.stop is not None))
    return not reply.has_server_ids and reply.completion_count not in counts


def _compile_template_or_none(source: str, special: dict[str, str]) -> Template | None:
    """The chat template; None where it does not compile."""
    try:
        return Template(source, special)
    except TemplateError:
        return None


def _parse_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call as templates take it, with its arguments as an object; as it is where they are no JSON."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        # Exact: a long whole number (an id) else becomes a float, and the template would write another one.
        arguments = parse_json(function["arguments"], REPLY, exact_integers=True)
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _assistant_message(content: str, reasoning: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer as templates take it; without empty fields, which some templates render."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _finish_reason_told_by_server(
    choice: Mapping[str, Any], completion_count: int | None, limit: int
) -> Any:
    """Why an answer ended, as the server says it."""
    reason = choice.get("finish_reason")
    # Some servers tell no reason. Fewer tokens than the limit then mean that the answer ended by itself.
    if reason is None and completion_count is not None:
        return "stop" if completion_count < limit else "length"
    return reason


def _token_entries(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a chat tells of each token; empty of a completion, which has lists of numbers."""
    content = list_field(choice.get("logprobs"), "content")
    return [entry for entry in content if isinstance(entry, dict)]


def _token_logprobs(choice: Mapping[str, Any]) -> list[float]:
    """The log-probabilities of the answer's tokens, in nats; those that are told and finite."""
    values = [entry.get("logprob") for entry in _token_entries(choice)]
    values = values or list_field(choice.get("logprobs"), "token_logprobs")
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return [value for value in numbers if math.isfinite(value)]


def _token_ids(choice: Mapping[str, Any]) -> list[int] | None:
    """The ids of the answer where the reply has them, all of them."""
    ids = list_field(choice, "token_ids")
    ids = ids or [entry.get("id") for entry in _token_entries(choice)]
    # Ids of a foreign server go into arrays of int32 later.
    is_known = bool(ids) and all(type(id) is int and 0 <= id < 1 << 31 for id in ids)
    return ids if is_known else None


def _are_all_logprobs_zero(logprobs: Sequence[float]) -> bool:
    """Are they all 0? One token alone may be: a model that has one choice."""
    return len(logprobs) > 1 and all(abs(value) < ZERO_LOGPROB for value in logprobs)
