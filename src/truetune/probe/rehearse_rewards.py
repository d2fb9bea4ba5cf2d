"""Rehearses a training by rewards: does the trainer's own code raise a reward that can be learned, and does its own
reward function tell right answers from wrong ones?

Two trials, each on a few short prompts, with the trainer's own sampling, advantages and loss:

1. **Golden rollouts**: right and wrong answers are given instead of sampled ones. The trainer's own reward functions
   score them, and its loss is stepped on them. The right answers must become likelier relative to the wrong ones.
2. **A reward that can be learned**: 1 where an answer begins with the first word of a right answer, the same word for
   all prompts. The miniature first learns to say it now and then, since no reward raises what is never sampled. Then
   the trainer samples by itself, and the reward must rise.

What does not rise is told apart by what else was seen: rewards without spread, no token in the loss, a gradient of 0,
or a policy that learns while the sampled answers stay as they were. The trade-off: groups are of eight answers of at
most a few tokens, in one micro-batch, whatever the run's settings say; those are judged by the rules on rollouts.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

REFERENCE_COLUMNS = (
    "answer", "solution", "ground_truth", "target", "label", "answers", "reference", "references",
    "gold", "expected_answer", "correct_answer", "final_answer", "expected", "gt", "output", "completion",
)  # fmt: skip
"""Columns that hold the right answer, the usual names first"""
ANSWER_FORMS = (
    ("", ""),
    ("\\boxed{", "}"),
    ("<answer>", "</answer>"),
    ("<think>\n...\n</think>\n<answer>\n", "\n</answer>"),
    ("<reasoning>\n...\n</reasoning>\n<answer>\n", "\n</answer>\n"),
    ("#### ", ""),
    ("The answer is ", "."),
)
"""What stands before and after a right answer, in the forms that reward functions mostly pay"""
GROUP_SIZE = 8
"""Answers to a prompt; chosen, not measured: with half of them a group of one reward is ten times as frequent."""
MAX_PROMPTS = 4
MAX_ROWS_READ = 64
"""Rows among which short prompts are looked for"""
MAX_PROMPT_TOKENS = 512
LEARNING_RATE = 3e-3
"""That of `memorise_batch`. Measured on two Llamas of two layers: at a third of it the reward rises half as fast."""
GOLDEN_STEPS = 20
"""Chosen: a right trainer moves the margins by some nats within ten"""
SAMPLED_TOKENS = 2
"""Tokens of a sampled answer; the first one decides"""
STARTING_SHARE = 0.25
"""How often the first word is said before the trainer samples: two of eight, so that nearly no group is of one
reward"""
MAX_WARM_UP_STEPS = 100
LEARNING_STEPS = 60
"""Measured with the same: sound trainers raise the share from 0.25 to 0.75 and more in so many steps"""
ENOUGH_RISE, MEAN_STEPS = 0.4, 5
"""The mean reward of so many steps is so much above the share at the start: it was learned"""


@dataclass
class _Row:
    """One prompt of the trial."""

    row: dict[str, Any]
    """As the trainer's dataset has it"""
    prompt_ids: list[int]
    reference: str
    """The right answer; empty where the row has none"""
    first_id: int
    """First token of the right answer, else of the row's last text"""


def rehearse_rewards(
    trainer: Any, model: Any, tokenizer: Any, stops: set[int], until: float
) -> dict[str, Any]:
    """Rehearse a training by rewards.

    Args:
        trainer: of a class for which `can_record_rollouts`.
        model: the miniature, in the trainer's place already; it is trained.
        tokenizer: that of the trainer.
        stops: ids that end an answer.
        until: by `time.perf_counter`; after it no further step begins.

    Returns:
        `nothing`, why nothing was tried; or `prompts`, `own` and `learned`, as JSON.
    """
    if tokenizer is None:
        return {"nothing": "there is no tokenizer; give the trainer processing_class=tokenizer"}
    rows = _choose_rows(trainer, tokenizer)
    if not rows:
        return {"nothing": "no row has a short prompt of text"}
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    start = copy.deepcopy(model.state_dict())
    with _trial_settings(trainer, len(rows)):
        trial = _Trial(trainer, model, tokenizer, stops, rows, until)
        own = trial.train_on_golden_rollouts()
        model.load_state_dict(start)
        learned = trial.learn_first_words()
    return {"prompts": len(rows), "own": own, "learned": learned}


def _choose_rows(trainer: Any, tokenizer: Any) -> list[_Row]:
    """Some rows with short prompts, all different, those with a right answer first."""
    found: dict[tuple[int, ...], _Row] = {}
    for row in _first_rows(trainer):
        prompt_ids = _prompt_ids_of(trainer, row)
        reference = _right_answer_of(row)
        words = tokenizer(reference or _last_text(row), add_special_tokens=False)["input_ids"]
        if words and prompt_ids and len(prompt_ids) <= MAX_PROMPT_TOKENS:
            found.setdefault(tuple(prompt_ids), _Row(row, prompt_ids, reference, int(words[0])))
    ordered = sorted(found.values(), key=lambda one: (not one.reference, len(one.prompt_ids)))
    return ordered[:MAX_PROMPTS]


def _first_rows(trainer: Any) -> Iterator[dict[str, Any]]:
    """The first rows of the trainer's dataset."""
    # `truetune train` keeps its rows apart from the dataset, which holds their numbers.
    kept = getattr(trainer, "rollout_rows", None)
    if kept is not None:
        yield from (kept.as_given_to_rewards(n) for n in range(min(len(kept), MAX_ROWS_READ)))
        return
    for number, row in enumerate(trainer.train_dataset):
        if number == MAX_ROWS_READ:
            return
        yield dict(row)


def _prompt_ids_of(trainer: Any, row: Mapping[str, Any]) -> list[int]:
    """The ids of a row's prompt, as the trainer makes them."""
    kept = getattr(trainer, "rollout_rows", None)
    if kept is not None:
        return list(kept.rows[row["truetune_row"]].prompt.ids)
    return [int(one) for one in trainer._tokenize_prompts([row["prompt"]])[0][0]]


def _right_answer_of(row: Mapping[str, Any]) -> str:
    """The right answer of a row; empty where no column of a usual name holds one."""
    for name in REFERENCE_COLUMNS:
        value = row.get(name)
        if isinstance(value, list) and value:
            value = value[0].get("content") if isinstance(value[0], Mapping) else value[0]
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            # GSM8K's references end with their final answer.
            text = str(value).rpartition("####")[2].strip()
            if text:
                return text
    return ""


def _last_text(row: Mapping[str, Any]) -> str:
    """The last text of a row's prompt."""
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return prompt
    content = prompt[-1].get("content") if prompt else ""
    return content if isinstance(content, str) else ""


@contextmanager
def _trial_settings(trainer: Any, prompts: int) -> Iterator[None]:
    """While this lasts, the trainer samples small groups of short answers, in one micro-batch; all is as before
    afterwards."""
    generation = copy.deepcopy(getattr(trainer, "generation_config", None))
    if generation is not None:
        generation.max_new_tokens = SAMPLED_TOKENS
    of_trainer = {
        "num_generations": GROUP_SIZE,
        "num_iterations": 1,
        "max_completion_length": SAMPLED_TOKENS,
        # All answers of the second trial are cut: they would all be left out of the loss.
        "mask_truncated_completions": False,
        "generation_config": generation,
        "generation_kwargs": {
            **(getattr(trainer, "generation_kwargs", None) or {}),
            "max_new_tokens": SAMPLED_TOKENS,
        },
        "current_gradient_accumulation_steps": 1,
        "_step": 0,
        "_buffered_inputs": None,
        "_metrics": copy.deepcopy(getattr(trainer, "_metrics", None)),
        "_logs": copy.deepcopy(getattr(trainer, "_logs", None)),
        "reward_funcs": trainer.reward_funcs,
        "reward_func_names": trainer.reward_func_names,
        "reward_weights": trainer.reward_weights,
        "reward_processing_classes": getattr(trainer, "reward_processing_classes", None),
        # The keeper of answers of `truetune train`.
        "keep_answers": None,
    }
    of_arguments = {
        "num_generations": GROUP_SIZE,
        "steps_per_generation": 1,
        "gradient_accumulation_steps": 1,
        "generation_batch_size": GROUP_SIZE * prompts,
        "per_device_train_batch_size": GROUP_SIZE * prompts,
    }
    with _attributes_set(trainer, of_trainer), _attributes_set(trainer.args, of_arguments):
        yield


@contextmanager
def _attributes_set(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """While this lasts, some attributes have other values; one that was not there goes again."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    vars(owner).update(values)
    try:
        yield
    finally:
        for name in values:
            vars(owner).pop(name, None)
        vars(owner).update(before)


class _Trial:
    """The trials of one trainer, within `_trial_settings`."""

    def __init__(
        self,
        trainer: Any,
        model: Any,
        tokenizer: Any,
        stops: set[int],
        rows: list[_Row],
        until: float,
    ) -> None:
        self.trainer, self.model, self.tokenizer = trainer, model, tokenizer
        self.stops, self.rows, self.until = stops, rows, until
        # As the trainer's sampler gives them: the answers to one prompt beside each other.
        self.batch = [row.row for row in rows for _ in range(GROUP_SIZE)]

    @property
    def _first_word(self) -> int:
        """The id that the second trial rewards."""
        # One word for all prompts: a word for each takes a miniature hundreds of steps, where prompts are much alike.
        return self.rows[0].first_id

    def train_on_golden_rollouts(self) -> dict[str, Any]:
        """Step on right and wrong answers by the trainer's own rewards and loss.

        Returns:
            `nothing`, why it was not tried; or `right` and `wrong`, the mean rewards in `form`; `tried`, how many
            answers, and `spread`, the largest reward of them less the smallest; and where the right ones are paid more,
            `margins`, (before, after) of each prompt in nats, and `steps`.
        """
        if len([row for row in self.rows if row.reference]) < len(self.rows):
            return {"nothing": "no column of a usual name holds the right answers"}
        try:
            pairs, facts = self._best_paid_form()
        except Exception as error:
            # The user's function may raise anything; the second trial does without it.
            return {"nothing": f"the reward functions raise {type(error).__name__}: {error}"}
        if not facts["right"] > facts["wrong"]:
            return facts
        ids = [self._answer_ids(pair[number % 2]) for pair in pairs for number in range(GROUP_SIZE)]
        before = self._margins(pairs)
        optimizer = self._make_optimizer()
        steps = 0
        with _attributes_set(self.trainer, {"_generate_single_turn": self._give_answers(ids)}):
            while steps < GOLDEN_STEPS and time.perf_counter() < self.until:
                self._step(optimizer)
                steps += 1
        margins = zip(before, self._margins(pairs), strict=True)
        return facts | {"margins": [list(pair) for pair in margins], "steps": steps}

    def _best_paid_form(self) -> tuple[list[tuple[str, str]], dict[str, Any]]:
        """(right and wrong answer of each prompt, the facts on their rewards) in the form whose right answers are
        paid most above the wrong ones."""
        best: tuple[list[tuple[str, str]], dict[str, Any]] | None = None
        every: list[float] = []
        for before, after in ANSWER_FORMS:
            pairs = [
                (f"{before}{row.reference}{after}", f"{before}{self._wrong_answer(row)}{after}")
                for row in self.rows
            ]
            of_right = self._rewards_of([pair[0] for pair in pairs])
            of_wrong = self._rewards_of([pair[1] for pair in pairs])
            every += [*of_right, *of_wrong]
            right, wrong = fmean(of_right), fmean(of_wrong)
            if best is None or right - wrong > best[1]["right"] - best[1]["wrong"]:
                best = pairs, {"right": right, "wrong": wrong, "form": f"{before}X{after}"}
        assert best is not None
        spread = max(every) - min(every)
        return best[0], best[1] | {"tried": len(every), "spread": spread, "margins": []}

    def _wrong_answer(self, row: _Row) -> str:
        """The right answer of another prompt; `?` where all are the same."""
        place = self.rows.index(row)
        others = (*self.rows[place + 1 :], *self.rows[:place])
        return next((one.reference for one in others if one.reference != row.reference), "?")

    def _rewards_of(self, texts: Sequence[str]) -> list[float]:
        """What the trainer's own functions give to an answer to each prompt, weighted and summed."""
        inputs = [dict(row.row) for row in self.rows]
        prompts = [row["prompt"] for row in inputs]
        completions: list[Any] = [
            text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
            for text, prompt in zip(texts, prompts, strict=True)
        ]
        ids = [self._answer_ids(text) for text in texts]
        given = self.trainer._calculate_rewards(inputs, prompts, completions, ids).float()
        sums = (given * self.trainer.reward_weights.to(given.device)).nansum(dim=1)
        return [float(one) for one in sums.tolist()]

    def _answer_ids(self, text: str) -> list[int]:
        """The ids of an answer, with a stop."""
        ids = [int(one) for one in self.tokenizer(text, add_special_tokens=False)["input_ids"]]
        end = self.tokenizer.eos_token_id
        return [*ids, end if end is not None else min(self.stops)]

    def _give_answers(self, ids: list[list[int]]) -> Callable[..., Any]:
        """A function in the place of the trainer's sampler, that gives these answers."""
        # RLOO's gives the ids alone, GRPO's the log-probabilities of an engine as well.
        is_rloo = any(base.__name__ == "RLOOTrainer" for base in type(self.trainer).__mro__)

        def give(*_: Any, **__: Any) -> Any:
            answers = [list(one) for one in ids]
            return answers if is_rloo else (answers, None)

        return give

    @torch.no_grad()
    def _margins(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """log p(right) - log p(wrong) after each prompt, in nats."""
        self.model.eval()
        margins = [
            self._log_probability(row.prompt_ids, self._answer_ids(right))
            - self._log_probability(row.prompt_ids, self._answer_ids(wrong))
            for row, (right, wrong) in zip(self.rows, pairs, strict=True)
        ]
        self.model.train()
        return margins

    def _log_probability(self, prompt: list[int], answer: list[int]) -> float:
        """The log-probability of an answer after a prompt, in nats."""
        ids = torch.tensor([prompt + answer], device=next(self.model.parameters()).device)
        logits = self.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
        ).logits.float()
        every = torch.log_softmax(logits[0, len(prompt) - 1 : -1], dim=-1)
        return float(every.gather(1, ids[0, len(prompt) :, None]).sum())

    def learn_first_words(self) -> dict[str, Any]:
        """Have the trainer sample and learn a reward for the first word of the right answer.

        Returns:
            rewards: mean of each step. policy: share of the first word by the policy itself, before each step and after
            the last. spread: share of the groups with more than one reward. in_loss: tokens in the loss of all steps.
            gradient: its largest norm.
        """
        self._warm_up()
        word = self._first_word
        rewards: list[float] = []
        spread: list[float] = []

        def first_word(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
            given = [float(bool(ids) and ids[0] == word) for ids in completion_ids]
            groups = torch.tensor(given).view(-1, GROUP_SIZE)
            rewards.append(float(groups.mean()))
            spread.append(float((groups.std(dim=1) > 0).float().mean()))
            return given

        replaced = {
            "reward_funcs": [first_word],
            "reward_func_names": ["first_word"],
            "reward_weights": torch.ones(1),
            "reward_processing_classes": [None],
        }
        policy = [self._share_of_first_words()]
        in_loss, gradient = 0, 0.0
        optimizer = self._make_optimizer()
        with _attributes_set(self.trainer, replaced):
            for _ in range(LEARNING_STEPS):
                is_learned = fmean(rewards[-MEAN_STEPS:] or [0.0]) >= policy[0] + ENOUGH_RISE
                if is_learned or time.perf_counter() >= self.until:
                    break
                count, norm = self._step(optimizer)
                in_loss, gradient = in_loss + count, max(gradient, norm)
                policy.append(self._share_of_first_words())
        return {
            "rewards": rewards,
            "policy": policy,
            "spread": sum(spread) / max(1, len(spread)),
            "in_loss": in_loss,
            "gradient": gradient,
        }

    def _warm_up(self) -> None:
        """Teach the miniature to say the first word now and then, by its own cross-entropy."""
        optimizer = self._make_optimizer()
        for _ in range(MAX_WARM_UP_STEPS):
            logits = self._logits_of_first_answer_token()
            each = torch.log_softmax(logits, dim=-1)[:, self._first_word]
            shares = each.detach().exp()
            if float(shares.min()) >= STARTING_SHARE or time.perf_counter() >= self.until:
                return
            # Prompts that say it often enough already wait for the others.
            loss: Any = -each[shares < STARTING_SHARE].sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def _logits_of_first_answer_token(self) -> torch.Tensor:
        """(prompts, vocabulary) logits of the first token of an answer."""
        device = next(self.model.parameters()).device
        each = []
        for row in self.rows:
            ids = torch.tensor([row.prompt_ids], device=device)
            output = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
            each.append(output.logits[0, -1].float())
        return torch.stack(each)

    @torch.no_grad()
    def _share_of_first_words(self) -> float:
        """The probability of the first word by the policy itself, mean of the prompts."""
        logits = self._logits_of_first_answer_token()
        return float(torch.softmax(logits, dim=-1)[:, self._first_word].mean())

    def _make_optimizer(self) -> torch.optim.Optimizer:
        """An optimizer of our own for all weights."""
        return torch.optim.AdamW(
            [one for one in self.model.parameters() if one.requires_grad],
            lr=LEARNING_RATE,
            weight_decay=0.0,
        )

    def _step(self, optimizer: torch.optim.Optimizer) -> tuple[int, float]:
        """(tokens in the loss, norm of the gradient) of one step by the trainer's own rollout and loss."""
        trainer, model = self.trainer, self.model
        model.train()
        # A rollout of its own for each step.
        trainer._buffered_inputs, trainer._step = None, 0
        inputs = trainer._prepare_inputs(list(self.batch))
        loss = trainer.compute_loss(model, inputs)
        count = int(_mask_of_loss(inputs).sum())
        if loss.requires_grad:
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(
            [one for one in model.parameters() if one.grad is not None], 1.0
        )
        optimizer.step()
        optimizer.zero_grad()
        return count, float(norm)


def _mask_of_loss(inputs: Mapping[str, Any]) -> torch.Tensor:
    """Which tokens of the answers are in the loss."""
    mask: torch.Tensor = inputs["completion_mask"]
    tools = inputs.get("tool_mask")
    return mask if tools is None else mask * tools
