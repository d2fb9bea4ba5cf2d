"""RunSpec: everything about a fine-tune that a check can look at.

It is what truetune.yaml and the options of the command line set, and what the settings of every other stack are
translated to. The models are frozen, for a run is read by many rules and written by one reader, and refuse unknown
names, for a misspelt setting that is ignored is the very fault that truetune looks for. The docstrings below the fields
are shown to users: by the JSON schema, and by the error messages.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from truetune.settings.row_formats import require_known_format
from truetune.settings.training_settings import Training
from truetune.trainers.trainer_fact_types import TRAINER_NAMES, TrainerName

Severity = Literal["error", "warning", "info"]
SupervisedPart = Literal["assistant", "last", "completion", "all"]
FormatName = str
"""The name of a `RowFormat`; see `row_formats`"""


class _Part(BaseModel):
    """Base of the groups of settings: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Learn(_Part):
    """Which of the tokens that the model must produce at inference are supervised."""

    what: SupervisedPart = "assistant"
    """assistant: every assistant turn; last: only the last one; completion: what follows the
    prompt (the last turn where a row has no prompt column); all: every token."""
    reasoning: bool = True
    """Supervise reasoning (`reasoning_content`, or what stands before `</think>`)."""
    tool_calls: bool = True
    """Supervise tool calls."""


class Encoding(_Part):
    """How `truetune encode` writes examples."""

    overflow: Literal["drop", "error", "truncate-prompt", "split"] = "drop"
    """What happens to an example longer than max_length. drop: it is left out and counted; error: the run ends;
    truncate-prompt: its oldest turns go, then the beginning of its last question, never what is supervised at its end;
    split: its turns are shared out to several examples."""
    packing: Literal["none", "best-fit"] = "none"
    """best-fit: several examples in one row of at most max_length tokens, with position_ids and seq_lengths."""
    content_specials: Literal["error", "keep", "text"] = "error"
    """Control tokens inside contents. error: such a row is an error; keep: they are encoded as control tokens;
    text: they are encoded as the characters that stand there."""
    on_error: Literal["error", "skip"] = "error"
    """A row that can't be read, rendered or encoded. error: the run ends; skip: it is written to rejected.jsonl."""
    file_format: Literal["parquet", "arrow"] = "parquet"
    """arrow: as `datasets.load_from_disk` takes it"""
    loss_weights: bool = False
    """Write a column loss_weights: the `weight` of each supervised token's message, 0 for context."""
    record_root: bool = False
    """Write the folder that the names of data files begin at into manifest.json; else no absolute path is in it."""
    sources: bool = False
    """Write a column sources: what each token is (`truetune.render.rendering.Source`)."""
    preferences: bool = False
    """Encode pairs and verdicts, and nothing else: of a pair the chosen side, then the rejected one, with a column
    label."""
    trainer: Literal["transformers", "axolotl", "llama-factory"] = "transformers"
    """Who reads the rows. transformers: all columns, which TRL takes too; the others refuse columns that they do not
    know and want an attention_mask, so they get just what they take (LLaMA-Factory in the Arrow form)."""

    @property
    def form(self) -> Literal["parquet", "arrow"]:
        """The form of file that is written: parquet or arrow."""
        return "arrow" if self.trainer == "llama-factory" else self.file_format


class Watch(_Part):
    """What `truetune train` looks at while it trains."""

    prompts: int = Field(default=8, ge=0)
    """Held-out prompts that the model answers each time; 0: none."""
    every: int | None = Field(default=None, gt=0)
    """Steps between two sampling passes; None: about five times a run."""
    max_new_tokens: int = Field(default=128, gt=0)
    """Longest answer; one that is longer counts as not stopped."""
    budget: float = Field(default=0.03, gt=0, le=1)
    """The share of the run's time that sampling passes may take; there are fewer of them where they would take
    more. 1: no bound."""
    parser: str | None = None
    """How an answer is read: json, json-schema:FILE, number, choice, choice:A-J, regex:PATTERN, python:module.function,
    or python:FILE.py:function."""
    stop_on: Severity | None = None
    """A finding of at least this severity ends the run early."""


class RunSpec(_Part):
    """One fine-tune, as far as it is known before it starts."""

    data: tuple[str, ...] = ()
    """Training files, folders or globs."""
    eval_data: tuple[str, ...] = ()
    """Evaluation files, compared with `data` for leaks."""
    tokenizer: str | None = None
    """A tokenizer folder, or the name of a model in the local hub cache."""
    model: str | None = None
    """The folder of config.json and the weights, where it is not the tokenizer's."""
    format: Annotated[FormatName, AfterValidator(require_known_format)] | None = None
    """The format of the rows; found by their columns when None."""
    media_dir: str | None = None
    """The folder that relative paths of pictures in the rows begin at. They are looked for beside the data too."""
    map: dict[str, str] = Field(default_factory=dict)
    """Column names: what truetune calls it -> what the file calls it (`answer=output`). Inside messages:
    `message.role=from`, `message.content=value`, `role.assistant=agent,bot`."""
    template: str | None = None
    """The name of one of the tokenizer's templates, or the path of a .jinja file."""
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Passed to the template, as serving does (`enable_thinking: false`)."""
    learn: Learn = Learn()
    """What is supervised; a word alone is its `what`."""
    history: Literal["as-served", "single"] = "as-served"
    """as-served: where the template rewrites earlier turns, one example per assistant turn, each as
    inference will see it; single: one example, of which only the turns that agree are supervised."""
    mask_by: Literal["contract", "generation-tags", "response-marker"] = "contract"
    """How the trainer that will run finds the supervised tokens."""
    response_marker: str | None = None
    """The text before each answer, where the trainer masks by such a marker."""
    append_eos: bool = False
    """The trainer appends EOS to rows that are plain text."""
    max_length: int | None = Field(default=None, gt=0)
    """Longest example in tokens; None where the run does not set it."""
    encode: Encoding = Encoding()
    """How rows become ids and labels."""
    training: Training = Training()
    """How the run trains."""
    watch: Watch = Watch()
    """What is looked at while the run trains."""
    rehearsal: bool = True
    """`truetune train` rehearses the run in miniature before its first step."""
    trained_by: TrainerName | None = None
    """Whose trainer will read the rows: what it learns of them, and how bad a finding is, depend on it. None: that of
    the settings or the script that is checked; else it is not known."""
    trainer: dict[str, Any] = Field(default_factory=dict)
    """Passed to the arguments of the trainer (transformers' TrainingArguments, TRL's DPOConfig, ...) as they are; a
    word alone is `trained_by`."""
    select: tuple[str, ...] = ()
    """Rules to run, by name, code prefix, fault or stability (`stable`, `preview`); all when empty."""
    ignore: tuple[str, ...] = ()
    """Rules to leave out, by name, code prefix, fault or stability."""
    fail_on: Severity = "error"
    """The lowest severity that makes the exit code 1."""
    allow_unjudged: bool = False
    """The exit code is 0, not 3, where something that was asked for could not be judged."""

    @model_validator(mode="before")
    @classmethod
    def _move_trainer_name_to_trained_by(cls, value: Any) -> Any:
        """Turn `trainer: trl` into `trained_by: trl`."""
        if not isinstance(value, dict) or value.get("trainer") not in TRAINER_NAMES:
            return value
        named = value["trainer"]
        if value.get("trained_by") not in (None, named):
            raise ValueError(
                f"trainer is {named} and trained_by is {value['trained_by']}; keep one"
            )
        return {key: item for key, item in value.items() if key != "trainer"} | {
            "trained_by": named
        }

    @field_validator("trainer", mode="before")
    @classmethod
    def _require_known_trainer(cls, value: Any) -> Any:
        """Raise ValueError for a `trainer` that is a text: names of known trainers are taken out before."""
        if isinstance(value, str):
            raise ValueError(
                f"expected one of {', '.join(TRAINER_NAMES)}, or the arguments of a trainer by name"
            )
        return value

    @field_validator("data", "eval_data", "select", "ignore", mode="before")
    @classmethod
    def _single_text_as_tuple(cls, value: Any) -> Any:
        """A single text as a tuple of one; anything else as it is."""
        return (value,) if isinstance(value, str) else value

    @field_validator("learn", mode="before")
    @classmethod
    def _expand_learn_given_by_name(cls, value: Any) -> Any:
        """Turn `learn: last` into `learn: {what: last}`."""
        return {"what": value} if isinstance(value, str) else value
