"""The adapter leaves experts out that its targets are meant for.

## What it does
For a mixture of experts with LoRA, works out which parameters peft adapts: those of the experts, of shared experts and
dense layers. It fires if `target_modules` names layers of the MLP, or all linear layers, and the experts get no
adapter, or shared experts and dense layers get none beside them; if a name in `target_parameters` matches nothing; and
if peft refuses the settings. Where the parameters are was measured with small models of each type, for releases of
transformers and peft; the files around the settings say which run.

## Why it is bad
In transformers 5, the experts of a layer are one parameter of three dimensions, which names of layers do not reach.
From 0.19 on, peft takes the names for these parameters for some types of models (Qwen3-MoE, DeepSeek-V3), and then
leaves out shared experts and dense layers of the same names. Most of the model stays frozen. Nothing warns, and the
loss falls, only less.

## Example
```yaml
files:
  model/config.json: {model_type: gpt_oss, num_local_experts: 32, num_experts_per_tok: 4}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  use_peft: true
  lora_target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
```

## Use instead
```yaml
files:
  model/config.json: {model_type: gpt_oss, num_local_experts: 32, num_experts_per_tok: 4}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  use_peft: true
  lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
  lora_target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]
  lora_dropout: 0
```

## Fix safety
An adapter on all experts is many times larger: rank times the number of experts. Without it, name the layers of
attention alone, and the settings say what is trained.

## References
- huggingface/peft#3009, huggingface/peft#2638, NVIDIA-NeMo/Automodel#1151, agentscope-ai/TuFT#154,
  vllm-project/vllm#47088, unslothai/unsloth#4193, AgileRL/AgileRL#630
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from truetune.checks.config.evidence.experts_of_run_model import (
    config_of_run_model,
    experts_of_run_model,
    has_part,
    reach_of_adapter,
)
from truetune.checks.config.evidence.match_module_names_like_peft import names_that_pattern_fits
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_LORA
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.trainers.experts_of_model_types import LoraReach, Part, is_name_of

TARGETS, PARAMETERS = "training.lora.target_modules", "training.lora.target_parameters"
DROPOUT = "training.lora.lora_dropout"
MLP_NAMES = frozenset(
    ("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3", "fc1", "fc2", "experts")
)
"""Names of layers of an MLP, in the words of all families"""
NO_EXPERTS = Unmet(
    "its model is no mixture of experts, or is of a type that was not measured",
    "run the training with `truetune run`, which says what is trained",
)
CHOSEN_BY_STACK = Unmet(
    "the stack, or a pattern, chooses what gets an adapter",
    "run the training with `truetune run`, which says what is trained",
)
PREFIX_OF_KEYS = {"trl": "lora_", "axolotl": "lora_"}
"""Before the names of peft's settings, in files of these stacks"""
NAMES_IN_LAYERS = tuple(
    f"model.layers.7.{module}.{name}"
    for module in (
        "mlp",
        "mlp.experts",
        "mlp.experts.0",
        "block_sparse_moe.experts.0",
        "feed_forward",
    )
    for name in sorted(MLP_NAMES)
)
"""What a pattern that is meant for MLPs fits"""
NAMES_OF_PARTS: dict[Part, str] = {"shared": "shared experts", "dense": "dense layers"}


class AdapterLeavesExpertsOut(ConfigRule):
    code = "CFG281"
    fault = Fault.LORA_TARGETS_DO_NOT_EXIST
    symptoms = ("nothing-is-learned",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can."""
        if self.subject.spec.training.lora is None:
            return NO_LORA
        facts = experts_of_run_model(self.subject)
        if facts is None:
            return NO_EXPERTS
        return CHOSEN_BY_STACK if reach_of_adapter(self.subject, facts) is None else None

    def measurement_if_clean(self) -> str:
        """What the adapter reaches of the experts."""
        reach = self._reach()
        assert reach is not None, "else the rule is not judged"
        share = reach.share("experts") or 0.0
        return f"the adapter is on {share:.0%} of the parameters of the experts ({reach.facts.model_type})"

    def findings(self) -> Iterator[Finding]:
        reach = self._reach()
        if reach is None:
            return
        if reach.missing_of_pair:
            yield self._finding_on_half_of_a_pair(reach)
            return
        yield from self._findings_on_parameters(reach)
        if self._names_mlp():
            yield from self._finding_on_parts_left_out(reach)
        yield from self._finding_on_dropout(reach)

    def _reach(self) -> LoraReach | None:
        """What the adapter reaches; None where that is not known."""
        facts = experts_of_run_model(self.subject)
        return None if facts is None else reach_of_adapter(self.subject, facts)

    def _target_names(self) -> tuple[str, ...]:
        """The names in target_modules, or those of MLPs that its pattern fits; none for `all-linear`."""
        lora = self.subject.spec.training.lora
        targets = lora.target_modules if lora is not None else None
        if isinstance(targets, str):
            return tuple(names_that_pattern_fits(targets, NAMES_IN_LAYERS) or ())
        return targets or ()

    def _names_mlp(self) -> bool:
        """Are the targets meant for the MLPs: by a name, or as all linear layers?"""
        lora = self.subject.spec.training.lora
        if lora is not None and lora.target_modules == "all-linear":
            return True
        return any(name.rpartition(".")[2] in MLP_NAMES for name in self._target_names())

    def _target_case(self) -> Case:
        """The setting of the targets at its place."""
        lora = self.subject.spec.training.lora
        targets = lora.target_modules if lora is not None else None
        shown = targets if isinstance(targets, str) else ", ".join(targets or ())
        return setting_case(self.subject, shown, TARGETS)

    def _finding_on_half_of_a_pair(self, reach: LoraReach) -> Finding:
        """The finding on names that peft takes for one parameter, of which some are missing."""
        missing = ", ".join(reach.missing_of_pair)
        return self.finding(
            f"target_modules lacks {missing}, which is one parameter with others that it names: peft stops",
            f"name {missing} too, or leave out the layers of the MLP",
            severity="error",
            evidence=[_releases(reach)],
            cases=[self._target_case()],
            is_loud=True,
        )

    def _findings_on_parameters(self, reach: LoraReach) -> Iterator[Finding]:
        """The findings on names in target_parameters that match no parameter."""
        lora = self.subject.spec.training.lora
        names = lora.target_parameters if lora is not None else ()
        known = (*reach.facts.experts, *reach.facts.router)
        for name in names:
            if any(is_name_of(name, parameter) for parameter in known):
                continue
            # Other parameters than those of experts may be named: norms, or weights of linear layers.
            if not any(word in name for word in ("expert", "moe", "mlp", "feed_forward")):
                continue
            near = difflib.get_close_matches(name, reach.facts.experts, n=1, cutoff=0.0)
            yield self.finding(
                f"{name} in target_parameters matches no parameter of the experts: it is not adapted",
                f"write {near[0]}, as the model names it" if near else f"remove {name}",
                evidence=[_releases(reach)],
                cases=[setting_case(self.subject, ", ".join(names), PARAMETERS)],
            )

    def _finding_on_parts_left_out(self, reach: LoraReach) -> Iterator[Finding]:
        """The finding on experts, shared experts or dense layers without an adapter."""
        if reach.share("experts") == 0:
            others = [text for part, text in NAMES_OF_PARTS.items() if reach.share(part)]
            reached = f"; it reaches {' and '.join(others)} alone" if others else ""
            yield self.finding(
                f"no expert gets an adapter: in this model they are {_listed(reach.left_out('experts'))}, which no name"
                f" in target_modules means{reached}",
                self._remedy(reach),
                evidence=[_releases(reach)],
                cases=[self._target_case()],
            )
            return
        values = config_of_run_model(self.subject)
        lost = [
            (part, text)
            for part, text in NAMES_OF_PARTS.items()
            if has_part(values, part) and _is_lost_to_experts(reach, part)
        ]
        if lost:
            names = [name for part, _ in lost for name in reach.left_out(part)]
            yield self.finding(
                f"{' and '.join(text for _, text in lost)} get no adapter: peft takes the names of target_modules for"
                " the parameters of the experts, and no longer for linear layers",
                "name these layers by their path, in a second adapter, or train them in modules_to_save; if the experts"
                " are enough, nothing has to be changed",
                severity="info",
                evidence=[_releases(reach), f"without an adapter: {_listed(names)}"],
                cases=[self._target_case()],
            )

    def _remedy(self, reach: LoraReach) -> str:
        """How the experts get an adapter, for the releases and the stack that run."""
        names = [name for name in reach.facts.experts if "*" not in name]
        if not names:
            lasts = sorted({name.split(".")[-2] for name in reach.facts.experts})
            return f"name the layers of the experts in target_modules: {', '.join(lasts)}"
        prefix = PREFIX_OF_KEYS.get(self.subject.stack, "")
        if is_config_of_python_program(self.subject):
            prefix = ""
        return (
            f"set {prefix}target_parameters: [{', '.join(names)}] and lora_dropout: 0, or name the layers of attention"
            " alone"
        )

    def _finding_on_dropout(self, reach: LoraReach) -> Iterator[Finding]:
        """The finding on dropout beside an adapter on parameters, which peft refuses."""
        lora = self.subject.spec.training.lora
        adapted = [name for name in reach.adapted if name in reach.facts.experts]
        if lora is None or not lora.lora_dropout or not adapted or not reach.facts.fused:
            return
        yield self.finding(
            f"lora_dropout is {lora.lora_dropout:g}, and the adapter is on {_listed(sorted(adapted))}: peft stops,"
            " since dropout has no place in an adapter on a parameter",
            "set lora_dropout to 0",
            severity="error",
            evidence=[_releases(reach)],
            cases=[setting_case(self.subject, lora.lora_dropout, DROPOUT)],
            is_loud=True,
        )


def _is_lost_to_experts(reach: LoraReach, part: Part) -> bool:
    """Do layers of a part have names that peft takes for parameters of the experts?"""
    renamed = reach.facts.renamed_targets
    return any(name.split(".")[-2] in renamed for name in reach.left_out(part))


def _releases(reach: LoraReach) -> str:
    """By what it was judged."""
    release = "5" if reach.facts.fused else "4"
    return f"measured with a small model of type {reach.facts.model_type}, transformers {release}"


def _listed(names: list[str]) -> str:
    """The first names, and how many there are besides."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
