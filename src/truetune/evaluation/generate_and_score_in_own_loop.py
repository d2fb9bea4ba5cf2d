"""Generator, scorer and writer: what `truetune train` does with answers while it trains, for a loop of your own.

    generate = Generator(model, tokenizer)
    judge, write = Scorer(), PredictionWriter("preds.jsonl")

    answers = generate(prompts, references, step=step)     # the model is as before: mode, settings, random states
    write(answers)                                         # a line each; truetune score preds.jsonl reads them
    report = judge(answers)                                # findings over all steps so far

Each of them can be used without the others. The trade-off: answers are greedy and come one batch at a time, so that a
pass costs time and leaves the training as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from truetune.data.read_predictions import Messages, Prediction
from truetune.errors import UsageError
from truetune.evaluation.score_predictions import ScoreReport, score
from truetune.parsing.input_limits import RESULT
from truetune.parsing.parse_json_within_limits import parse_json

# In this order, by which a file of ours is known again.
COLUMNS = ("step", "prompt", "prediction", "reference", "stopped")
"""Of a written line"""


@dataclass
class Generator:
    """Answers of a model in this process, as a server would give them: greedy, until a stop token or the limit.

    `model` is a causal model of transformers, be it in PEFT, DDP or torch.compile, and `tokenizer` its tokenizer. A
    text is asked as a user's message where the tokenizer has a chat template, else as it stands. `stops` are token ids;
    without them those of the model's generation_config, else the tokenizer's EOS.
    """

    model: Any
    tokenizer: Any
    max_new_tokens: int = 128
    stops: Sequence[int] | None = None

    def __call__(
        self, prompts: Sequence[str | Messages], references: Sequence[str] = (), *, step: int = 0
    ) -> list[Prediction]:
        """The answer to each prompt.

        Args:
            prompts: texts, or lists of messages.
            references: as many, or none.
            step: of the training.

        Raises:
            UsageError: there are not as many references as prompts, or no stop token.
        """
        from truetune.generation.answer_samples import Prompt
        from truetune.generation.generate_answers import generate_answers

        if references and len(references) != len(prompts):
            raise UsageError(
                f"Generator: {len(prompts):,} prompts and {len(references):,} references; give as"
                " many"
            )
        stops = self._stop_ids()
        answers = generate_answers(
            self.model,
            [
                Prompt(tuple(self._encode(prompt)), "", "", (), "", 0, row=row)
                for row, prompt in enumerate(prompts)
            ],
            stops=stops,
            pad=self._pad_id(stops),
            max_new_tokens=self.max_new_tokens,
            # With special tokens: a role marker in an answer is what a rule looks for.
            decode=lambda ids: str(self.tokenizer.decode(list(ids), skip_special_tokens=False)),
        )
        of_prompts = references or [""] * len(prompts)
        return [
            Prediction(answer.text, prompt, reference, step, answer.stop is not None)
            for prompt, reference, answer in zip(prompts, of_prompts, answers, strict=True)
            if answer is not None
        ]

    def _encode(self, prompt: str | Messages) -> list[int]:
        """The ids of a prompt, with its generation prompt where there is a template."""
        if isinstance(prompt, str) and not getattr(self.tokenizer, "chat_template", None):
            return [int(id) for id in self.tokenizer(prompt)["input_ids"]]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        # The template writes its own BOS: the tokenizer's would be a second one.
        return [int(id) for id in self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def _stop_ids(self) -> list[int]:
        """The ids at which answers end. Raises UsageError where nothing tells them."""
        stops: Any = self.stops
        if stops is None:
            config = getattr(self.model, "generation_config", None)
            stops = getattr(config, "eos_token_id", None)
        if stops is None:
            stops = self.tokenizer.eos_token_id
        if stops is None:
            raise UsageError(
                "Generator: neither generation_config nor the tokenizer names a stop token; give"
                " stops=[ID]"
            )
        return [stops] if isinstance(stops, int) else [int(id) for id in stops]

    def _pad_id(self, stops: Sequence[int]) -> int:
        """The id that fills batches. Any valid id would do, for pads are masked by their place."""
        pad_id = self.tokenizer.pad_token_id
        return int(min(stops) if pad_id is None else pad_id)


@dataclass
class Scorer:
    """Judges answers, step by step: its report is on all that it was given so far, so that trends are seen.

    `parser` is that of `truetune.score`, and `settings` are select, ignore and fail_on.
    """

    parser: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    predictions: list[Prediction] = field(default_factory=list)
    """All that was judged"""

    def __call__(self, predictions: Iterable[Prediction]) -> ScoreReport:
        """The report on these answers and those before them. Raises UsageError where there is none yet."""
        self.predictions += predictions
        return score(self.predictions, parser=self.parser, **self.settings)


class PredictionWriter:
    """Writes answers to a JSONL file, a line each, for `truetune score`. A file of its own is continued."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Raises UsageError for a file that is there and holds other lines, or whose folder is not there."""
        self.path = Path(path)
        # All that can be wrong is said before a run of hours, not at its first pass.
        if self.path.suffix != ".jsonl":
            raise UsageError(f"{self.path}: expected a .jsonl file")
        if not self.path.parent.is_dir():
            raise UsageError(f"{self.path.parent}: no such folder")
        if self.path.exists() and not _is_own_prediction_file(self.path):
            raise UsageError(f"{self.path}: truetune did not write it; name another file")

    def __call__(self, predictions: Iterable[Prediction]) -> None:
        """Add a line for each. Raises OSError."""
        # Opened for each call: a loop that is killed loses nothing of earlier steps.
        with self.path.open("a", encoding="utf-8") as file:
            for one in predictions:
                prompt = one.prompt if isinstance(one.prompt, str) else [*one.prompt]
                values = (one.step, prompt, one.text, one.reference, one.stopped)
                line = json.dumps(dict(zip(COLUMNS, values, strict=True)), ensure_ascii=False)
                file.write(line + "\n")


def _is_own_prediction_file(path: Path) -> bool:
    """Does every line have the columns that are written here? A missing end of the last line is a line that was cut."""
    try:
        with path.open("rb") as file:
            return all(tuple(parse_json(line, RESULT)) == COLUMNS for line in file)
    except (OSError, ValueError, TypeError):
        return False
