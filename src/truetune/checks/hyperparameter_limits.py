"""Limits of hyperparameters: values at which a run does nothing, or falls apart.

One table for all who name a setting: files of any stack, arguments in scripts, optimizers of one's own, and the
adapter_config.json of a saved adapter. A row says where a value is out of range and what happens there; it is an error
only where that follows from the arithmetic, whatever the data. Settings are named as RunSpec names them
(`training.weight_decay`), and as transformers and TRL do where RunSpec has no field. What several of them decide
together is a name of its own (`lora scale`). The trade-off: a value that is unusual, but was published with success,
is within the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.checks.count_optimizer_steps import FEW, SCARCE
from truetune.settings.run_spec import Severity

Values = Mapping[str, Any]
"""Name of a setting -> its value"""
OUT_OF_RANGE = "setting-out-of-range"
BETA = "preference-beta-out-of-range"
NOTHING = "settings-train-nothing"
GENERATION = "generation-settings-distort-answers"
# Above it less than a third of the GPU is left for weights, gradients and activations, which take more than half.
MAX_VLLM_SHARE = 0.7
"""Of the GPU: training holds the weights, too, and more than they take beside them. Recipes give 0.2 to 0.5"""
CLIPPED_TO = "clip_grad_norm_"
"""The norm that a loop clips gradients to: unlike trainers, it takes 0 at its word"""
SCALE = "lora scale"
"""lora_alpha / r, or lora_alpha / sqrt(r) of rsLoRA: what the adapter's output is multiplied by"""
SCALE_NAMES = {False: "lora_alpha / r", True: "lora_alpha / sqrt(r)"}
"""Whether it is rank-stabilised -> what the scale is"""
MIN_SGD_RATE = 1e-4
"""With gradients of norm 1 a thousand steps of plain SGD move all weights together by 0.1 at most; those of a model
with 0.5 billion weights have a norm of some hundreds"""
SCALED_RATE = "lora scale x learning rate"
KTO_STEP_ROWS = "rows of a KTO step"
"""On all GPUs together, without those of accumulation: what TRL's KTO estimates its KL term from"""
KL_COEFFICIENT = "coefficient of the KL to the reference"
"""Of trainings by rewards whose programs do not call it beta"""
DECAY_RATE = "weight decay x learning rate"
ROW_TOKENS = "limit on the tokens of a row"
"""As the stack cuts rows; known where a file sets it"""
# Below the shortest that published settings take (256), and below 128, which short texts with a label take.
MIN_ROW_TOKENS = 128
UPDATES = "optimizer steps"
"""Steps of a run that its rows, batch and epochs decide"""
SEEN = "share of the rows that max_steps sees"
ASKED_EPOCHS = "epochs that the file asks for"
"""Where it sets `max_steps` too, which decides"""
# The largest max_steps of Unsloth's notebooks; at double, published recipes of a thousand rows would count as trials.
MAX_STEPS_OF_TRIAL = 500


class Interval(NamedTuple):
    """Numbers that are out of range: all that meet each bound which is set."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        # NaN is what a rule on ranges can't name: it fails every comparison, and would pass `not (value <= limit)`.
        """Is the number one of them? NaN is none."""
        return not math.isnan(value) and all(
            (
                self.above is None or value > self.above,
                self.at_least is None or value >= self.at_least,
                # Dots would be read as attributes by str.format.
                self.below is None or value < self.below,
                self.at_most is None or value <= self.at_most,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Values of one setting that are out of range, and what they do."""

    setting: str
    outside: Interval
    severity: Severity
    says: str
    """The finding; `{value}`, `{name}` and the names of other settings without their dots stand for values"""
    fix: str
    source: str
    """Where the range comes from"""
    rule: str = OUT_OF_RANGE
    when: Callable[[Values], bool] = lambda values: True


class Breach(NamedTuple):
    """A value that is out of range."""

    limit: Limit
    value: float

    def text(self, template: str, values: Values, name: str) -> str:
        """A text of the limit, filled with the values of the run; `name` is what the user calls the
        setting.
        """
        known = {
            key.replace("training.", "").replace("lora.", ""): format_value(value)
            for key, value in values.items()
        }
        # A limit on lora_alpha names the rank, which settings may leave to peft's default.
        known.setdefault("r", "the rank r (8 by default)")
        return template.format_map({**known, "value": format_value(self.value), "name": name})


def format_value(value: Any) -> str:
    """A value as a message shows it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_setting_number(value: Any) -> float | None:
    """The number that a setting holds, also as text (`1e-5` is a text to YAML); None for anything else."""
    # True is an int: without this a switch would be a number.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    # `nan` is read as a number by Python, and lies within no limit and outside of none.
    return None if math.isnan(number) else number


def lora_scale(alpha: Any, rank: Any, *, rank_stabilised: bool = False) -> float | None:
    """The factor on an adapter's output, alpha / r or alpha / sqrt(r), without its sign (B takes it
    up); None if it is not known.
    """
    above, below = parse_setting_number(alpha), parse_setting_number(rank)
    if above is None or below is None or below < 1:
        return None
    return abs(above) / (math.sqrt(below) if rank_stabilised else below)


def limit_breaches(values: Values, *rules: str) -> Iterator[Breach]:
    """The settings whose values are out of range, by the rows of these rules.

    Of several rows of one setting, the first that fits counts: rows stand with the gravest first.
    """
    # A zero rate is an error and a low one a warning: the reader needs the first alone.
    seen = set()
    for limit in LIMITS:
        value = parse_setting_number(values.get(limit.setting))
        if limit.rule not in rules or limit.setting in seen or value is None:
            continue
        if limit.outside.holds(value) and limit.when(values):
            seen.add(limit.setting)
            yield Breach(limit, value)


def settings_with_limits(*rules: str) -> tuple[str, ...]:
    """The settings that the rows of these rules are about, in their order."""
    return tuple(dict.fromkeys(limit.setting for limit in LIMITS if limit.rule in rules))


def _condition_on_methods(*methods: str) -> Callable[[Values], bool]:
    """A condition: is the run's training method one of these?"""
    return lambda values: values.get("method") in methods


def _does_loss_read_label_smoothing(values: Values) -> bool:
    """Does the loss read label_smoothing? Of TRL's losses, these do."""
    losses = set(str(values.get("loss_type") or "sigmoid").split("+"))
    return values.get("method") in ("dpo", "cpo") and bool(
        losses & {"sigmoid", "robust", "exo_pair", "None"}
    )


SUMMED = frozenset(("sigmoid", "robust", "hinge", "kto", "None"))
"""Losses of summed log-probabilities whose beta is the reward's scale, as DPO's is"""


def _does_beta_scale_summed_logprobs(values: Values) -> bool:
    """Is beta the scale of a reward of summed log-probabilities, as in DPO and KTO?"""
    losses = SUMMED.intersection(str(values.get("loss_type")).split("+"))
    return values.get("method") in ("dpo", "kto") and bool(losses)


def _does_beta_scale_mean_logprobs(values: Values) -> bool:
    """Is beta the scale of a reward of mean log-probabilities, as in SimPO?"""
    return str(values.get("loss_type")) == "simpo"


def _does_kto_estimate_kl(values: Values) -> bool:
    """Does a run of TRL's KTO estimate its KL term from the rows of a step? One loss of it has no such term."""
    return values.get("method") == "kto" and values.get("loss_type") != "apo_zero_unpaired"


def _do_epochs_set_run_length(values: Values) -> bool:
    """Is the length of the run set by epochs?"""
    return (parse_setting_number(values.get("training.max_steps")) or 0) < 1


def _has_few_max_steps(values: Values) -> bool:
    """Is `max_steps` as small as in runs that only try a method?"""
    return 0 < (parse_setting_number(values.get("training.max_steps")) or 0) <= MAX_STEPS_OF_TRIAL


def _sets_epochs_beside_max_steps(values: Values) -> bool:
    """Does the file ask for whole epochs, beside the `max_steps` that decides?"""
    return (parse_setting_number(values.get(ASKED_EPOCHS)) or 0) >= 1


def _is_plain_sgd(values: Values) -> bool:
    """Is the optimizer SGD without anything that scales its steps?"""
    return str(values.get("training.optim") or "").lower() == "sgd"


def _is_lora_scale_unusually_low(values: Values) -> bool:
    """Is the scale itself below what is published? Else the learning rate is what is small, which has its own rule."""
    strength = parse_setting_number(values.get(SCALE))
    if strength is None or values.get("method") != "sft":
        return False
    return FAINT <= strength < LOWEST_SCALE


def _is_scaled_rate_high_at_usual_rank(values: Values) -> bool:
    """Is scale times learning rate high for what lora_alpha is to the rank, at a rank that is no special one?

    At rank 1 a scale of 32 is published with rates up to 1e-3, for there a step changes one direction alone (LoRA
    Without Regret).
    """
    product = parse_setting_number(values.get(SCALED_RATE))
    rank = parse_setting_number(values.get("training.lora.r"))
    alpha = parse_setting_number(values.get("training.lora.lora_alpha"))
    if product is None or rank is None or alpha is None:
        return False
    # Twice the rank is what recipes give, with rsLoRA at high ranks as well; of it only what is far out is named.
    strongest = STRONGEST if alpha > 2 * rank else STRONGEST_OF_RECIPES
    return product >= strongest and rank >= MIN_RANK


def _is_sampling(values: Values) -> bool:
    """Are answers certainly sampled?"""
    return values.get("do_sample") is True


MIN_P_THAT_CUTS = 0.05
"""With a min_p from here on, tokens that are 20 times less likely than the best are never drawn; its authors sample at
temperatures up to 3 with 0.05 to 0.1 (arXiv:2407.01082), and Unsloth's notebooks at 1.5 with 0.1"""


def _may_unlikely_tokens_be_sampled(values: Values) -> bool:
    """May unlikely tokens be drawn: is there no min_p that takes them away? One that is not known may be high."""
    if "min_p" not in values:
        return True
    min_p = parse_setting_number(values["min_p"])
    return min_p is not None and min_p < MIN_P_THAT_CUTS


def _are_answers_structured(values: Values) -> bool:
    """Are the answers JSON, code, SQL or the like, in which tokens have to be repeated?"""
    return bool(values.get("structured"))


def _should_judge_weight_decay(values: Values) -> bool:
    """Is the weight decay to be judged: is the optimizer not Lion, and is rate x decay below 1?

    Lion takes ten times the decay with a tenth of the rate; if each step replaces the weights,
    another rule says so.
    """
    replaces = (parse_setting_number(values.get(DECAY_RATE)) or 0) >= 1
    return not replaces and "lion" not in str(values.get("training.optim")).lower()


def _does_optimizer_read_adam_settings(values: Values) -> bool:
    """Does the optimizer read the settings of Adam?"""
    return "adam" in str(values.get("training.optim") or "adamw").lower()


FAINT = 0.03
"""Published are 0.25 to 8, and 0.06 at r 512 with a rate fitted to it; below, the scale alone is out of range"""
LOWEST_SCALE = 0.25
"""lora_alpha 16 over r 64, of the QLoRA paper: the smallest scale that is published for usual rates"""
WEAKEST = 1e-6
"""LOWEST_SCALE times 5e-6, the lowest rate for an adapter on answers (learning-rate-far-from-published)"""

MAX_PUBLISHED_SCALE = 8.0
"""The highest scale that is published for usual rates (8 at 2e-4)"""
HIGHEST_SCALE = 2 * MAX_PUBLISHED_SCALE
"""Chosen, not measured: twice what is published, so that a bold scale alone is not named"""
STRONGEST = 2e-3
"""Scale times rate: 8 times 2e-4 is published (0.0016), for adapters on answers"""
STRONGEST_OF_RECIPES = 5e-3
"""The same for an alpha of at most twice the rank, which only rsLoRA makes a high scale. Public files have up to 0.0045
(r 128, alpha 256 at 2e-4); chosen above that, three times what is published for answers"""
MIN_RANK = 8
"""Rank from which on the published scales hold. Chosen: 8 is the lowest rank in common use, and the default of PEFT"""

LIMITS: tuple[Limit, ...] = (
    Limit(
        setting="training.learning_rate",
        outside=Interval(at_least=0, at_most=0),
        severity="error",
        rule=NOTHING,
        says="the learning rate is 0",
        fix="set a learning rate",
        source="an update is the learning rate times something",
    ),
    Limit(
        setting="training.num_train_epochs",
        outside=Interval(at_most=0),
        severity="error",
        rule=NOTHING,
        says="the run has {value} epochs",
        fix="set num_train_epochs, or max_steps",
        when=_do_epochs_set_run_length,
        source="no row is seen",
    ),
    Limit(
        setting="training.lora.lora_alpha",
        outside=Interval(at_least=0, at_most=0),
        severity="error",
        rule=NOTHING,
        says="lora_alpha is 0: the adapter's output is multiplied by 0, so it has no effect",
        fix="set lora_alpha to {r}, or twice as much",
        source="LoRA (arXiv:2106.09685): the update is alpha / r * B A",
    ),
    Limit(
        setting="training.lora.lora_dropout",
        outside=Interval(at_least=1),
        severity="error",
        rule=NOTHING,
        says="lora_dropout is {value}: the adapter gets no input, so it is not trained",
        fix="set lora_dropout to 0 or 0.05",
        source="torch.nn.Dropout(1.0) gives zeros",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(at_least=0, at_most=0),
        severity="error",
        rule=BETA,
        says="a beta of {value} for {METHOD}: every gradient is 0",
        fix="set {name} to 0.1, or between 0.01 and 0.5",
        when=_condition_on_methods("dpo", "kto"),
        source="DPO (arXiv:2305.18290), equation 7",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(below=0),
        severity="error",
        rule=BETA,
        says="a beta of {value} for {METHOD}: the rejected answer is preferred",
        fix="set {name} to 0.1, or between 0.01 and 0.5",
        when=_condition_on_methods("dpo", "kto"),
        source="DPO (arXiv:2305.18290), equation 7",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(above=1),
        severity="warning",
        rule=BETA,
        says="a beta of {value} for {METHOD}: the model hardly leaves its reference",
        fix="set {name} to 0.1, or between 0.01 and 0.5",
        when=_does_beta_scale_summed_logprobs,
        source="published are 0.01 to 0.5",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(above=0, below=0.001),
        severity="warning",
        rule=BETA,
        says="a beta of {value} for {METHOD}: next to nothing keeps the model near its reference",
        fix="set {name} to 0.1, or between 0.01 and 0.5",
        when=_does_beta_scale_summed_logprobs,
        source="published are 0.01 to 0.5, in ablations 0.001",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(above=0, below=0.5),
        severity="warning",
        rule=BETA,
        says="a beta of {value} for SimPO: it scales log-probabilities per token, in which a pair differs by about 1,"
        " so that the reward stays far below its margin and every pair pushes on",
        fix="set {name} to 2.0 to 2.5 (up to 10)",
        when=_does_beta_scale_mean_logprobs,
        source="SimPO (arXiv:2405.14734), table 7: 2.0 to 10",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(at_most=0),
        severity="error",
        rule=BETA,
        says="the odds ratio of ORPO has a weight of {value}: rejected answers have no effect, or are preferred",
        fix="set {name} to 0.1, or between 0.05 and 1",
        when=_condition_on_methods("orpo"),
        source="ORPO (arXiv:2403.07691), equation 6: SFT's loss plus lambda times that of the odds ratio",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(above=0, below=0.01),
        severity="warning",
        rule=BETA,
        says=(
            "the odds ratio of ORPO has a weight of {value}: in practice, the loss is that of SFT on the chosen"
            " answers"
        ),
        fix="set {name} to 0.1, or between 0.05 and 1",
        when=_condition_on_methods("orpo"),
        source="ORPO (arXiv:2403.07691) trains at 0.1 to 0.25, and compares 0.1 to 1",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(above=5),
        severity="warning",
        rule=BETA,
        says="the odds ratio of ORPO has a weight of {value}: it outweighs the loss on the answers",
        fix="set {name} to 0.1, or between 0.05 and 1",
        when=_condition_on_methods("orpo"),
        source="ORPO (arXiv:2403.07691) trains at 0.1 to 0.25, and compares 0.1 to 1",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(at_most=0),
        severity="error",
        rule=BETA,
        says="a beta of {value} for {METHOD}: rejected answers have no effect, or are preferred",
        fix="set {name} to 0.1 (CPO), or to 2 to 10 (SimPO)",
        when=_condition_on_methods("cpo"),
        source="SimPO (arXiv:2405.14734), equation 6; CPO (arXiv:2401.08417), equation 4",
    ),
    Limit(
        setting="label_smoothing",
        outside=Interval(above=0.5),
        severity="error",
        says="{name} is {value}: more than half of the pairs count as labelled the wrong way round, so rejected answers"
        " are preferred",
        fix="set {name} to 0, or up to 0.3 where so many labels are wrong",
        when=_does_loss_read_label_smoothing,
        source="conservative DPO: the loss is (1 - e) L(chosen, rejected) + e L(rejected, chosen)",
    ),
    Limit(
        setting="label_smoothing",
        outside=Interval(at_least=0.5, at_most=0.5),
        severity="error",
        says="{name} is {value}: each pair pulls as much to the rejected as to the chosen answer, so the gradient is 0"
        " at the start and the loss stays at ln 2",
        fix="set {name} to 0, or up to 0.3 where so many labels are wrong",
        when=_does_loss_read_label_smoothing,
        source="conservative DPO: the loss is (1 - e) L(chosen, rejected) + e L(rejected, chosen)",
    ),
    Limit(
        setting="label_smoothing",
        outside=Interval(at_least=0.4),
        severity="warning",
        says="{name} is {value}: the preferences nearly cancel, for the margin is pulled to log((1 - e) / e)",
        fix="set {name} to 0, or up to 0.3 where so many labels are wrong",
        when=_does_loss_read_label_smoothing,
        source="conservative DPO; published are 0 to 0.3",
    ),
    Limit(
        setting="label_smoothing_factor",
        outside=Interval(at_least=1),
        severity="error",
        says="{name} is {value}: the labels have no weight in the loss, so every token is equally good",
        fix="set {name} to 0, or to 0.1",
        source="transformers' LabelSmoother: (1 - e) * nll + e * uniform",
    ),
    Limit(
        setting="label_smoothing_factor",
        outside=Interval(at_least=0.4),
        severity="warning",
        says="{name} is {value}: the model is trained to be unsure of every token",
        fix="set {name} to 0, or to 0.1",
        source="published is 0.1 (arXiv:1706.03762)",
    ),
    Limit(
        setting="training.desirable_weight",
        outside=Interval(at_most=0),
        severity="warning",
        says="{name} is {value}: answers judged good are not learned from",
        fix="set {name} to 1",
        when=_condition_on_methods("kto"),
        source="KTO (arXiv:2402.01306), equation 8",
    ),
    Limit(
        setting="training.undesirable_weight",
        outside=Interval(at_most=0),
        severity="warning",
        says="{name} is {value}: answers judged bad are not learned from",
        fix="set {name} to 1",
        when=_condition_on_methods("kto"),
        source="KTO (arXiv:2402.01306), equation 8",
    ),
    Limit(
        setting="cpo_alpha",
        outside=Interval(above=0),
        severity="info",
        says=(
            "loss_type is simpo, and {name} is {value}: the SFT loss on the chosen answers is added with that"
            " weight"
        ),
        fix="set {name} to 0.0 for SimPO itself; leave it for CPO-SimPO",
        when=_does_beta_scale_mean_logprobs,
        source="TRL's CPOTrainer adds cpo_alpha * nll_loss, by default 1.0; SimPO (arXiv:2405.14734) has no such term",
    ),
    Limit(
        setting=KTO_STEP_ROWS,
        outside=Interval(above=0, below=4),
        severity="info",
        says="KTO estimates its KL term from the {value} rows of one batch (times the GPUs of the launch), whatever is"
        " accumulated: the estimate jumps between 0 and large values, and the loss stays near 0.5",
        fix="set {name} to 4 or more, and gradient_accumulation_steps lower by as much",
        when=_does_kto_estimate_kl,
        source="TRL's KTOTrainer, batch size recommendations: 4 rows a step at least, 16 to 128 with accumulation",
    ),
    Limit(
        setting="training.learning_rate",
        outside=Interval(below=0),
        severity="error",
        says="the learning rate is {value}: the optimizer refuses it, or the loss is made larger",
        fix="set a learning rate above 0",
        source="torch.optim.AdamW raises ValueError",
    ),
    Limit(
        setting="training.learning_rate",
        outside=Interval(above=0, below=MIN_SGD_RATE),
        severity="error",
        says=(
            "the optimizer is plain SGD, and {name} is {value}: SGD moves the weights a thousand times less than"
            " AdamW at that learning rate, and the loss does not fall"
        ),
        fix="set optim to adamw_torch, or to adamw_8bit or paged_adamw_8bit if memory is short",
        when=_is_plain_sgd,
        source="torch.optim.SGD: w <- w - lr * g; transformers gives it no momentum",
    ),
    Limit(
        setting=SCALE,
        outside=Interval(above=0, below=FAINT),
        severity="warning",
        says=(
            "{name} is {value}: the adapter's output is multiplied by that, so at usual learning rates it has next"
            " to no effect"
        ),
        fix="set lora_alpha to {r}, or twice as much",
        source=(
            "published values are 0.25 (QLoRA, arXiv:2305.14314) to 8; 0.06 at r 512 with an adapted learning rate"
            " (LoRA Without Regret)"
        ),
    ),
    Limit(
        setting=SCALED_RATE,
        outside=Interval(above=0, below=WEAKEST),
        severity="warning",
        says="a learning rate of {learning_rate} is multiplied by {lora scale}, which is {name}: the"
        " adapter hardly moves",
        fix="set lora_alpha to {r}, or twice as much, and a learning rate of 1e-4 to 5e-4",
        when=_is_lora_scale_unusually_low,
        source="the lowest published rate times the lowest published scale",
    ),
    Limit(
        setting=SCALE,
        outside=Interval(above=64),
        severity="warning",
        says="{name} is {value}: each step of the adapter is multiplied by that, and the loss is likely to explode",
        fix="set lora_alpha to {r}, or twice as much",
        source="published are 0.25 to 8, and with rsLoRA up to 32 (arXiv:2312.03732)",
    ),
    Limit(
        setting=SCALE,
        outside=Interval(above=HIGHEST_SCALE),
        severity="warning",
        says="{name} is {value}, where 1 to 2 is usual, at a learning rate of {learning_rate}: each step of the adapter"
        " is multiplied by that, and the loss may rise and stay up",
        fix="set lora_alpha so that {name} is 1 to 2, or a learning rate that is lower by as much",
        when=_is_scaled_rate_high_at_usual_rank,
        source="published are 0.25 to 8 at usual rates, such as 8 at 2e-4",
    ),
    Limit(
        setting="training.lora.lora_dropout",
        outside=Interval(above=0.5, below=1),
        severity="warning",
        says="{name} is {value}: most of what the adapter sees is set to 0",
        fix="set {name} to 0 or 0.05",
        source="published are 0 to 0.1",
    ),
    Limit(
        setting="training.lora.lora_dropout",
        outside=Interval(below=0),
        severity="error",
        says="{name} is {value}: torch.nn.Dropout refuses it",
        fix="set {name} to 0 or 0.05",
        source="torch.nn.Dropout raises ValueError",
    ),
    Limit(
        setting=DECAY_RATE,
        outside=Interval(at_least=1),
        severity="error",
        says="weight_decay {weight_decay} x learning rate {learning_rate} is {value}: each step sets the weights"
        " to 0, or turns their sign",
        fix="set weight_decay to 0, or up to 0.1",
        source="AdamW (arXiv:1711.05101): w <- (1 - lr * decay) w - lr * update",
    ),
    Limit(
        setting="training.weight_decay",
        outside=Interval(below=0),
        severity="error",
        says="{name} is {value}: torch.optim refuses it",
        fix="set {name} to 0, or up to 0.1",
        source="torch.optim.AdamW raises ValueError",
    ),
    Limit(
        setting="training.weight_decay",
        outside=Interval(above=1),
        severity="warning",
        when=_should_judge_weight_decay,
        says="{name} is {value}: weights shrink by {value} times the learning rate at each step, and an adapter"
        " goes back to 0",
        fix="set {name} to 0, or up to 0.1",
        source="published are 0 to 0.1, and up to 1 for small models from scratch",
    ),
    Limit(
        setting="training.max_grad_norm",
        outside=Interval(above=0, at_most=1e-5),
        severity="error",
        says="{name} is {value}: gradients are scaled down to a norm at which Adam's epsilon outweighs them, and"
        " nothing is learned",
        fix="set {name} to 1.0",
        source="a million weights share that norm, so each gradient is below 1e-8, Adam's epsilon",
    ),
    Limit(
        setting="training.max_grad_norm",
        outside=Interval(above=0, below=1e-3),
        severity="warning",
        says="{name} is {value}: gradients are scaled down so far that Adam's epsilon weighs in",
        fix="set {name} to 1.0",
        source="published are 0.1 to 5; Adam's epsilon is 1e-8 a weight",
    ),
    Limit(
        when=_does_optimizer_read_adam_settings,
        setting="adam_epsilon",
        outside=Interval(at_least=0.1),
        severity="error",
        says="{name} is {value}: it is added to the size of every gradient, and outweighs it, so the updates vanish",
        fix="set {name} to 1e-8",
        source="Adam (arXiv:1412.6980): the update is m / (sqrt(v) + eps)",
    ),
    Limit(
        when=_does_optimizer_read_adam_settings,
        setting="adam_epsilon",
        outside=Interval(at_least=1e-3),
        severity="warning",
        says="{name} is {value}: it outweighs most gradients of a language model, so the updates are small",
        fix="set {name} to 1e-8",
        source="published are 1e-8 to 1e-5",
    ),
    Limit(
        setting="adam_epsilon",
        outside=Interval(below=0),
        severity="error",
        says="{name} is {value}: torch.optim refuses it",
        fix="set {name} to 1e-8",
        source="torch.optim.AdamW raises ValueError",
    ),
    *(
        Limit(
            setting=setting,
            outside=outside,
            severity="error",
            says="{name} is {value}: torch.optim refuses it, as it is a share below 1",
            fix=f"set {{name}} to {usual}",
            source="torch.optim.AdamW raises ValueError: Invalid beta parameter",
        )
        for setting, usual in (("adam_beta1", 0.9), ("adam_beta2", 0.999))
        for outside in (Interval(at_least=1), Interval(below=0))
    ),
    Limit(
        setting="adam_beta2",
        outside=Interval(at_least=0, below=0.5),
        severity="warning",
        says="{name} is {value}: each update is divided by the last gradient alone, so all have one size",
        fix="set {name} to 0.95 to 0.999",
        source="published are 0.95 to 0.999",
    ),
    Limit(
        setting="neftune_noise_alpha",
        outside=Interval(above=40),
        severity="warning",
        says="{name} is {value}: the noise is as large as the embeddings",
        fix="set {name} to 5, or up to 15",
        source="NEFTune (arXiv:2310.05914) uses 5 to 15; embeddings are near 0.02",
    ),
    Limit(
        setting=ROW_TOKENS,
        outside=Interval(above=0, below=MIN_ROW_TOKENS),
        severity="warning",
        says="rows are cut at {value} tokens: the marks of a chat template and a short question fill most of them, and"
        " answers are cut off",
        fix="set {name} to 2048, or what the longest rows need",
        when=_condition_on_methods("sft", "dpo", "kto", "orpo", "cpo"),
        source="published settings of chats and instructions cut at 256 or more, and nearly all at 512 or more",
    ),
    Limit(
        setting="training.val_size",
        outside=Interval(at_least=0.5, below=1),
        severity="warning",
        says="{name} is {value}: that share of the rows is held out and not used for training",
        fix="set {name} to 0.05 to 0.2",
        source="published are 0.01 to 0.2",
    ),
    Limit(
        setting=UPDATES,
        outside=Interval(below=FEW),
        severity="warning",
        says="{steps} in the whole run: too few to learn anything; rows, batch, accumulation and epochs leave no more",
        fix="lower gradient_accumulation_steps or the batch, train for more epochs, or add rows",
        source="AdamW moves a weight by about the learning rate at each step; the warm-up takes the first",
    ),
    Limit(
        setting=UPDATES,
        outside=Interval(below=SCARCE),
        severity="info",
        says="{steps} in the whole run: few to learn anything from",
        fix="lower gradient_accumulation_steps or the batch, train for more epochs, or add rows",
        source="the notebooks that try a method make 30 to 60, published recipes hundreds",
    ),
    Limit(
        setting=SEEN,
        outside=Interval(below=0.05),
        severity="warning",
        says="{name} ends the run after {rows_seen}: the others are never seen",
        fix="leave {name} out, so that num_train_epochs decides",
        source="notebooks that try a method have max_steps of 60; 1 to 3 epochs are usual",
    ),
    Limit(
        setting=SEEN,
        # Half: whoever limits the steps on purpose mostly wants an epoch. At a quarter, a third of the rows would pass.
        outside=Interval(below=0.5),
        severity="warning",
        says="{name} ends the run after {max_steps} steps and {rows_seen}: the others are never seen",
        fix="leave {name} out, so that num_train_epochs decides (1 to 3)",
        when=_has_few_max_steps,
        source="notebooks that try a method make 60 to 500 steps (Unsloth: max_steps = 60)",
    ),
    Limit(
        setting=SEEN,
        # A fifth: who asks for an epoch means to see the rows. At a quarter, long runs are limited on purpose.
        outside=Interval(below=0.2),
        severity="warning",
        says="{name} ends the run after {max_steps} steps and {rows_seen}, and the epochs that are set do not count",
        fix="leave {name} out, so that num_train_epochs decides",
        when=_sets_epochs_beside_max_steps,
        source="transformers TrainingArguments: max_steps overrides num_train_epochs",
    ),
    Limit(
        setting="training.num_train_epochs",
        outside=Interval(above=0, below=0.05),
        severity="warning",
        says="{name} is {value}: the run only sees that share of the rows",
        fix="set {name} to 1 to 3",
        when=_do_epochs_set_run_length,
        source="a share of the rows; 1 to 3 epochs are usual",
    ),
    Limit(
        setting="num_generations",
        outside=Interval(below=2),
        severity="error",
        says="{name} is {value}: an answer is compared with the others of its prompt, and there is none, so the"
        " advantage is 0, or the trainer stops",
        fix="set {name} to 8, or at least to 2",
        when=_condition_on_methods("grpo"),
        source="GRPO (arXiv:2402.03300), section 4.1; TRL raises ValueError",
    ),
    Limit(
        setting="temperature",
        outside=Interval(at_most=0),
        severity="error",
        says="{name} is {value} while answers are sampled for training: all answers to a prompt are one, or the logits"
        " are divided by 0",
        fix="set {name} to 1.0, or 0.7 to 1.2",
        when=_condition_on_methods("grpo"),
        source="the advantage compares different answers to one prompt",
    ),
    Limit(
        setting="temperature",
        outside=Interval(below=0.3),
        severity="warning",
        says="{name} is {value} while answers are sampled for training: most answers to a prompt are alike, and have no"
        " advantage",
        fix="set {name} to 1.0, or 0.7 to 1.2",
        when=_condition_on_methods("grpo"),
        source="published are 0.6 to 1.2",
    ),
    Limit(
        setting="temperature",
        outside=Interval(at_most=0),
        severity="error",
        says="{name} is {value} while the policy samples the answers that it is trained on: it tries nothing new,"
        " answers that are compared are the same, or the logits are divided by 0",
        fix="set {name} to 0.9, or 0.7 to 1.2",
        when=_condition_on_methods("ppo"),
        source="online DPO, Nash-MD and XPO learn from the difference of two answers, PPO from what it tries",
    ),
    Limit(
        setting="temperature",
        outside=Interval(below=0.3),
        severity="warning",
        says="{name} is {value} while the policy samples the answers that it is trained on: most are alike, so two that"
        " are compared show no preference",
        fix="set {name} to 0.9, or 0.7 to 1.2",
        when=_condition_on_methods("ppo"),
        source="TRL's defaults are 0.9 for online DPO and 0.7 for PPO; published are 0.6 to 1.2",
    ),
    Limit(
        setting="temperature",
        outside=Interval(above=2),
        severity="warning",
        says="{name} is {value} while answers are sampled for training: they are noise, and no reward comes",
        fix="set {name} to 1.0, or 0.7 to 1.2",
        when=_condition_on_methods("grpo"),
        source="published are 0.6 to 1.2",
    ),
    Limit(
        setting="top_k",
        outside=Interval(at_least=1, at_most=1),
        severity="error",
        says="{name} is {value} while answers are sampled for training: all answers to a prompt are one, so the"
        " advantage is 0",
        fix="leave {name} out",
        when=_condition_on_methods("grpo"),
        source="the advantage compares different answers to one prompt",
    ),
    Limit(
        setting="top_p",
        outside=Interval(below=0.3),
        severity="warning",
        says="{name} is {value} while answers are sampled for training: most answers to a prompt are alike, and have no"
        " advantage",
        fix="set {name} to 1.0",
        when=_condition_on_methods("grpo"),
        source="published are 0.9 to 1",
    ),
    Limit(
        setting="training.beta",
        outside=Interval(at_least=2),
        severity="warning",
        says="{name} is {value}: the distance to the reference outweighs the reward",
        fix="set {name} to 0, or up to 0.1",
        when=_condition_on_methods("grpo"),
        source="published are 0 to 0.1 (arXiv:2402.03300: 0.04)",
    ),
    Limit(
        setting=KL_COEFFICIENT,
        outside=Interval(at_least=2),
        severity="warning",
        says="{name} is {value}: the distance to the reference outweighs the reward",
        fix="set {name} to 0, or up to 0.1",
        when=_condition_on_methods("grpo"),
        source="published are 0 to 0.1 (arXiv:2402.03300: 0.04)",
    ),
    Limit(
        setting=CLIPPED_TO,
        outside=Interval(at_most=0),
        severity="error",
        says="gradients are clipped to a norm of {value}: every gradient is multiplied by 0",
        fix="give a norm of 1.0, or leave the call out",
        source="torch.nn.utils.clip_grad_norm_ multiplies by max_norm / norm where that is below 1",
    ),
    Limit(
        setting=CLIPPED_TO,
        outside=Interval(above=0, below=1e-3),
        severity="warning",
        says="gradients are clipped to a norm of {value}, at which Adam's epsilon weighs in, and the updates vanish",
        fix="give a norm of 1.0",
        source="published are 0.1 to 5; Adam's epsilon is 1e-8 a weight",
    ),
    Limit(
        setting="num_beams",
        outside=Interval(at_least=6),
        severity="info",
        rule=GENERATION,
        says="{name} is {value}: each token is computed for {value} beams, which takes up to {value} times the time and"
        " cache of a greedy answer",
        fix="set {name} to 1, or up to 4",
        source="published translations and summaries use 4 or 5 beams; chat models none",
    ),
    Limit(
        setting="no_repeat_ngram_size",
        outside=Interval(at_least=1, at_most=10),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value}: no {value} tokens in a row may come twice, those of the prompt included, so"
        " what has to be repeated (keys of JSON, names, code, quotes) comes out wrong",
        fix="leave {name} out",
        source="transformers' NoRepeatNGramLogitsProcessor bans by -inf; it counts the prompt",
    ),
    Limit(
        setting="repetition_penalty",
        outside=Interval(at_least=1.3),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value}: every token that came before, in the prompt too, has its logit divided"
        " by that, so JSON, code, names and even full stops come out wrong",
        fix="set {name} to 1.0, or up to 1.1",
        source="CTRL (arXiv:1909.05858) uses 1.2; published models 1.0 to 1.1",
    ),
    Limit(
        setting="repetition_penalty",
        outside=Interval(at_least=1.1),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value} and the answers are structured: keys, brackets and names that have to be repeated are"
        " punished",
        fix="set {name} to 1.0",
        when=_are_answers_structured,
        source="published models use 1.0 to 1.1",
    ),
    Limit(
        setting="repetition_penalty",
        outside=Interval(above=0, below=0.95),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value}: below 1 it rewards tokens that came before, and answers loop",
        fix="set {name} to 1.0",
        source="CTRL (arXiv:1909.05858), section 4.1",
    ),
    Limit(
        setting="repetition_penalty",
        outside=Interval(at_most=0),
        severity="error",
        rule=GENERATION,
        says="{name} is {value}: logits are divided by it, and generation stops with an error",
        fix="set {name} to 1.0",
        source="transformers' RepetitionPenaltyLogitsProcessor raises ValueError",
    ),
    *(
        Limit(
            setting=setting,
            outside=Interval(at_least=1),
            severity="warning",
            rule=GENERATION,
            says="{name} is {value}: tokens that came before are so unlikely that long and"
            " structured answers fall apart",
            fix="set {name} to 0",
            source="engines subtract it from the logits, whose differences are about 1 to 5",
        )
        for setting in ("frequency_penalty", "presence_penalty")
    ),
    Limit(
        setting="temperature",
        outside=Interval(at_most=0),
        severity="error",
        rule=GENERATION,
        says="{name} is {value} with do_sample=True: transformers refuses it",
        fix="set do_sample to False for greedy answers",
        when=_is_sampling,
        source="transformers' TemperatureLogitsWarper raises ValueError",
    ),
    Limit(
        setting="temperature",
        outside=Interval(at_least=1.5),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value}: unlikely tokens are drawn often, and answers turn into noise",
        fix="set {name} to 0.7, or up to 1.0",
        when=_may_unlikely_tokens_be_sampled,
        source="published models use 0.1 to 1.0",
    ),
    Limit(
        setting="top_p",
        outside=Interval(above=1),
        severity="error",
        rule=GENERATION,
        says="{name} is {value}: it is a probability, and generation stops with an error",
        fix="set {name} to 0.9, or to 1",
        source="transformers' TopPLogitsWarper raises ValueError",
    ),
    Limit(
        setting="min_new_tokens",
        outside=Interval(at_least=32),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value}: no answer may stop before, and short ones run on into nonsense",
        fix="leave {name} out",
        source="transformers' MinNewTokensLengthLogitsProcessor sets the stop tokens to -inf",
    ),
    Limit(
        setting="min_length",
        outside=Interval(at_least=64),
        severity="warning",
        rule=GENERATION,
        says="{name} is {value}: prompt and answer together may not end before, so short answers to short prompts run"
        " on into nonsense",
        fix="leave {name} out",
        source="transformers' MinLengthLogitsProcessor sets the stop tokens to -inf; it counts the prompt",
    ),
    Limit(
        setting="ignore_eos",
        outside=Interval(at_least=1),
        severity="warning",
        rule=GENERATION,
        says="{name} is on: generation ignores stop tokens, and each answer hits max_new_tokens",
        fix="remove {name}, except for speed benchmarks",
        source="vLLM's SamplingParams",
    ),
)
"""Ranges, the gravest of a setting first"""
