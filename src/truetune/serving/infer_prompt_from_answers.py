"""Infers which prompt a server made of messages from its answers, where it does not tell the prompt
itself.

The greedy answer to messages (/v1/chat/completions) is held against the greedy answer to the trained prompt itself
(/v1/completions). Equal prompts give equal answers; and to see that other prompts would give others, the prompt that a
known mistake makes is sent too.

The trade-off: answers are hints, not proofs. A model that says the same thing to two prompts hides their difference,
so equality counts only where a prompt with a mistake in it is answered otherwise; what stays open becomes a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from truetune.generation.backends.http_client import map_concurrently
from truetune.render.template_probes import Probes
from truetune.serving.compare_served_with_trained_prompts import (
    ComparedPrompt,
    describe_difference_that_would_explain_server,
    explain_constant_offset,
    find_mistakes_of_served_length,
)
from truetune.serving.prompts_of_known_mistakes import list_mistakes_with_ids_that_differ
from truetune.serving.server_client import GREEDY, ServerAnswer, ServerClient

# Chosen, not measured: two prompts that differ part within a few greedy tokens, and each token costs time.
ANSWER_TOKENS = 8
"""Of an answer that is compared"""
# Chosen, not measured: above the rounding between batches in half precision, far below what another prompt does.
SAME_LOGPROB_NATS = 0.05
"""Nats by which a first token's log-probability differs, at most, after the same prompt"""
# Chosen, not measured: one equal answer may be chance, three in a row hardly are.
CONFIRMING_PROMPTS = 3
"""Prompts by which a cause is confirmed"""
# Chosen, not measured: their number of tokens says most already, so the answers to a few must do.
MAX_COUNTED_PROMPTS = 6
"""Prompts whose number of tokens is right, and as many where it is not, that are compared by answers too"""
# A mistake that explains one prompt of many is a coincidence of lengths.
MIN_EXPLAINED_PROMPTS = 2
"""Prompts that a mistake must explain"""
# Each is one more request for each prompt; the likeliest mistakes come first.
MAX_CONTROL_PROMPTS = 2
"""Prompts with a known mistake that are sent instead of each, at most"""
LOGPROB_FIELDS = {"logprobs": True, "top_logprobs": 2}
"""Of a chat; a completion has the number in `logprobs`"""
Progress = Callable[[int, int], None]


def compare_prompts_by_answers(
    client: ServerClient,
    prompts: Sequence[ComparedPrompt],
    probes: Probes,
    base: Probes | None,
    progress: Progress | None = None,
) -> tuple[list[ComparedPrompt], list[str]]:
    """Compare the prompts whose ids the server does not tell by its answers as well.

    Args:
        client: the server.
        prompts: what `compare_server_prompts` could tell.
        probes: tokenizer and template of the training.
        base: the same with the base model's template, where it has another.
        progress: called with the number of prompts that are done, and of all.

    Returns:
        All prompts, in their order, and notes on what the answers could not tell either.
    """
    heard = [
        _PromptAnswers(prompt, _likeliest_mistakes_as_controls(prompt, probes, base))
        for prompt in select_prompts_to_compare_by_answers(prompts)
    ]
    # The first goes alone: it finds out in which form /v1/completions takes a prompt, which the others then know.
    map_concurrently(
        lambda answers, _: answers.ask_server_for_answers_and_controls(client, probes), heard[:1], 1
    )
    map_concurrently(
        lambda answers, _: answers.ask_server_for_answers_and_controls(client, probes),
        heard[1:],
        client.concurrency,
        progress,
    )
    by_name = {answers.prompt.trained.name: answers for answers in heard}
    compared = []
    for prompt in prompts:
        answers = by_name.get(prompt.trained.name)
        compared.append(prompt if answers is None else answers.compare_served_and_trained_prompt())
    chat_answers = {name: answers.chat for name, answers in by_name.items()}
    explained = _explain_differences_by_mistakes(client, compared, chat_answers, probes, base)
    return explained, list(_notes_on_undecided_prompts(client, compared))


def _likeliest_mistakes_as_controls(
    prompt: ComparedPrompt, probes: Probes, base: Probes | None
) -> list[list[int]]:
    """The ids of the likeliest mistakes, as controls: the server must answer them otherwise than
    the prompt.
    """
    variants = list_mistakes_with_ids_that_differ(prompt.trained, probes, base)
    return [ids for _, ids in islice(variants, MAX_CONTROL_PROMPTS)]


def select_prompts_to_compare_by_answers(prompts: Sequence[ComparedPrompt]) -> list[ComparedPrompt]:
    """The prompts to compare by answers: those of which nothing is known, and some of those whose
    number of tokens is, which says most already.
    """
    undecided = [
        prompt
        for prompt in prompts
        if prompt.comparison.by != "ids" and not was_refused_by_server(prompt)
    ]
    selected = {prompt.trained.name for prompt in undecided if prompt.comparison.same is None}
    for same in (True, False):
        counted = [prompt.trained.name for prompt in undecided if prompt.comparison.same is same]
        # Evenly spread over the group, for its prompts come in the order of their kinds.
        step = -(-len(counted) // MAX_COUNTED_PROMPTS) or 1
        selected.update(counted[::step])
    return [prompt for prompt in undecided if prompt.trained.name in selected]


def was_refused_by_server(prompt: ComparedPrompt) -> bool:
    """Did the server give no answer to it?"""
    return bool(prompt.comparison.refused)


def _notes_on_undecided_prompts(
    client: ServerClient, prompts: Iterable[ComparedPrompt]
) -> Iterable[str]:
    """Notes on prompts of which it can't be told whether they are built as trained."""
    comparisons = [
        prompt.comparison
        for prompt in prompts
        if prompt.comparison.by != "ids" and not was_refused_by_server(prompt)
    ]
    unsure = [comparison.name for comparison in comparisons if comparison.same is None]
    counted = [
        comparison.name
        for comparison in comparisons
        if comparison.by == "count" and comparison.same
    ]
    if unsure:
        yield (f"{len(unsure)} prompts can't be identified by the answers: {', '.join(unsure[:5])}")
    if counted and client.prompt_form is None:
        yield (
            "the server tells the number of its prompts' tokens and takes no exact prompt: "
            f"{len(counted)} prompts were compared by that number alone"
        )


@dataclass
class _PromptAnswers:
    """The server's answers to a chat, to the trained prompt, and to prompts with a mistake in them."""

    prompt: ComparedPrompt
    mistakes: list[list[int]]
    """Ids of the prompts with a mistake"""
    chat: ServerAnswer = field(default_factory=ServerAnswer)
    exact: ServerAnswer = field(default_factory=ServerAnswer)
    mistakes_differ: bool = False
    """An answer to one with a mistake is another."""

    def ask_server_for_answers_and_controls(self, client: ServerClient, probes: Probes) -> None:
        """Ask the server for the answers; prompts with a mistake only where the answers are equal,
        for they prove that.
        """
        trained = self.prompt.trained
        self.chat = client.chat(
            trained.as_chat_request_body, ANSWER_TOKENS, **GREEDY, **LOGPROB_FIELDS
        )
        if self.chat.refusal:
            return
        self.exact = client.complete_exact_ids(
            trained.ids, trained.text, ANSWER_TOKENS, **GREEDY, logprobs=2
        )
        if self.prompt.comparison.same is not False and do_answers_come_from_same_prompt(
            self.chat, self.exact
        ):
            self.mistakes_differ = any(
                do_answers_come_from_same_prompt(
                    self.exact, _greedy_answer_to_ids(client, ids, probes)
                )
                is False
                for ids in self.mistakes
            )

    def compare_served_and_trained_prompt(self) -> ComparedPrompt:
        """Compare the served prompt with the trained one by the answers, where they say more than the number of tokens
        does.
        """
        known = self.prompt.comparison
        if self.chat.refusal:
            return replace(self.prompt, comparison=replace(known, refused=self.chat.refusal))
        same = do_answers_come_from_same_prompt(self.chat, self.exact)
        if known.same is False:
            # A server that counts the exact prompt's tokens rightly may be believed where its numbers differ.
            counts_rightly = self.exact.prompt_tokens is not None
            return replace(self.prompt, comparison=replace(known, sure=counts_rightly))
        if same is None or (same and not self.mistakes_differ):
            return self.prompt
        return replace(self.prompt, comparison=replace(known, same=same, by="answers", refused=""))


def do_answers_come_from_same_prompt(one: ServerAnswer, other: ServerAnswer) -> bool | None:
    """Were these answers given to the same prompt? None where it can't be told."""
    if one.refusal or other.refusal or not (one.finish and other.finish):
        return None
    # The first token's log-probability is the sharpest sign: greedy texts may be equal after different prompts.
    if one.steps and other.steps:
        first, second = one.steps[0], other.steps[0]
        is_near = abs(first.logprob - second.logprob) <= SAME_LOGPROB_NATS
        return is_near and first.token.strip() == second.token.strip()
    return None if one.parsed or other.parsed else one.text.strip() == other.text.strip()


def _greedy_answer_to_ids(client: ServerClient, ids: Sequence[int], probes: Probes) -> ServerAnswer:
    """The greedy answer to exactly these ids."""
    text = str(probes.tokenizer.backend.decode(list(ids), skip_special_tokens=False))
    return client.complete_exact_ids(ids, text, ANSWER_TOKENS, **GREEDY, logprobs=2)


def _explain_differences_by_mistakes(
    client: ServerClient,
    prompts: Sequence[ComparedPrompt],
    chat_answers: dict[str, ServerAnswer],
    probes: Probes,
    base: Probes | None,
) -> list[ComparedPrompt]:
    """The prompts, with the cause of those that differ: the mistake that explains most of them, and
    gives the same answers.
    """
    differing = _explain_by_constant_offset(prompts)
    explained = {prompt.trained.name: prompt.comparison for prompt in differing}
    for mistake, ids_by_name in find_mistakes_of_served_length(differing, probes, base).items():
        explains_enough = len(ids_by_name) >= min(MIN_EXPLAINED_PROMPTS, len(differing))
        if not explains_enough or not _do_mistake_prompts_get_chat_answers(
            client, ids_by_name, chat_answers, probes
        ):
            continue
        for prompt in differing:
            ids = ids_by_name.get(prompt.trained.name)
            if ids is not None:
                comparison = prompt.comparison
                as_long = "" if comparison.served is None else "a prompt made so is as long, and "
                explained[prompt.trained.name] = replace(
                    comparison,
                    cause=f"probably {mistake} ({as_long}the server answers as it does to that one)",
                    difference=describe_difference_that_would_explain_server(
                        prompt.trained.ids, ids, probes
                    ),
                )
        break
    return [
        replace(prompt, comparison=explained.get(prompt.trained.name, prompt.comparison))
        for prompt in prompts
    ]


def _explain_by_constant_offset(prompts: Sequence[ComparedPrompt]) -> list[ComparedPrompt]:
    """The prompts; those that differ with the explanation of a constant offset of their lengths."""
    differing = [
        prompt
        for prompt in prompts
        if prompt.comparison.same is False and prompt.comparison.by != "ids"
    ]
    # The server that counts one known prompt rightly counts all of them so.
    sure = any(prompt.comparison.sure for prompt in differing)
    offset = explain_constant_offset(differing)
    return [
        replace(prompt, comparison=replace(prompt.comparison, sure=sure, cause=offset))
        for prompt in differing
    ]


def _do_mistake_prompts_get_chat_answers(
    client: ServerClient,
    ids_by_name: dict[str, list[int]],
    chat_answers: dict[str, ServerAnswer],
    probes: Probes,
) -> bool:
    """Does the server answer the prompts of this mistake as it answers the messages?"""
    pairs = [(chat_answers[name], ids) for name, ids in ids_by_name.items() if name in chat_answers]
    tried = pairs[:CONFIRMING_PROMPTS]
    return bool(tried) and all(
        do_answers_come_from_same_prompt(chat, _greedy_answer_to_ids(client, ids, probes))
        for chat, ids in tried
    )
