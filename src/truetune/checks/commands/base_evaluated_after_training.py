"""A project trains a model, but its commands evaluate, serve or convert the base model.

## What it does
Reads scripts and job files that train (`trl sft`, `axolotl train`, `llamafactory-cli train`, `swift sft`, `tune run`
with a training recipe, a script whose name says that it trains), with the model that they start from and the folder
that they write. It fires if a later `lm_eval`, `vllm serve`, `swift infer` or torchtune `eleuther_eval` or `generate`
names the starting model without an adapter, and no later command uses the written folder as a model.

If the project trains in a Python script, in another command file, or with Axolotl or LLaMA-Factory settings whose
output folder contains a model, it compares the commands of the other files: `lm_eval`, `vllm serve` and llama.cpp's
`convert_hf_to_gguf.py`. It fires if they name the base without an adapter, and no command of the project names what the
training, or the merge after it, writes. It skips files and results whose name says that they are about the base.

## Why it is bad
There is no error. The scores are those of the base, and training seems to have had no effect.

## Example
```bash
trl sft --model_name_or_path org/base-1b --dataset_name rows --max_length 2048 --use_peft --output_dir out/tuned
lm_eval -b 8 --model hf --model_args pretrained=org/base-1b --tasks gsm8k
```

## Use instead
```bash
trl sft --model_name_or_path org/base-1b --dataset_name rows --max_length 2048 --use_peft --output_dir out/tuned
lm_eval -b 8 --model hf --model_args pretrained=org/base-1b,peft=out/tuned --tasks gsm8k
```

## Fix safety
There is no automatic fix: the base may be evaluated last on purpose, for a comparison with scores from elsewhere.

## References
- EleutherAI/lm-evaluation-harness, docs/model_guide.md (`peft`); vLLM documentation, "LoRA Adapters"
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.commands.evidence.models_used_by_commands import (
    ABOUT_THE_BASE,
    ModelUse,
    TrainingCommand,
    model_uses_without_adapter,
    only_training_with_unused_output,
    output_paths,
    torchtune_uses_output,
    trainings_in_commands,
    uses_output_as_model,
)
from truetune.checks.faults import Fault
from truetune.checks.find_what_scripts_train_and_where import (
    canonical_folder_name,
)
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand


class BaseEvaluatedAfterTraining(CommandRule):
    code = "CMD051"
    fault = Fault.WRONG_MODEL_EVALUATED
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    what = "commands that train with a folder for the result, or that evaluate, serve or convert a model"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[TrainingCommand | ModelUse]:
        """The places that the rule looks at.

        The commands that train into a folder, or that evaluate, serve or convert a model.
        """
        trainings = list(trainings_in_commands(file))
        yield from trainings or model_uses_without_adapter(file)

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        trainings = list(trainings_in_commands(file))
        yield from (
            self._findings_after_trainings(trainings)
            if trainings
            else self._findings_beside_scripts()
        )

    def _findings_beside_scripts(self) -> Iterator[Finding]:
        """Findings on commands that use the base which a script of the project trains, where none
        uses what it writes.
        """
        path = Path(self.subject.path)
        used = [
            one
            for one in model_uses_without_adapter(self.subject)
            if not _writes_to_a_base_path(one.command)
        ]
        if not used or ABOUT_THE_BASE.search(path.name):
            return
        trained = only_training_with_unused_output(path)
        if trained is None:
            return
        asked = next(
            (one for one in used if canonical_folder_name(one.model) in trained.bases), None
        )
        if asked is not None:
            yield self.finding(
                f"{asked.model} is the base model that {Path(trained.path).name} trains, but no command uses the"
                f" trained model ({trained.best}): {asked.result} the base",
                asked.remedy.replace("FOLDER", trained.best),
                cases=[self.case_of_command(asked.command, asked.text), trained.case],
            )

    def _findings_after_trainings(self, trainings: list[TrainingCommand]) -> Iterator[Finding]:
        """Findings on commands of one file that use the base after the training."""
        file = self.subject
        for training in trainings:
            later = [one for one in file.commands if one.line > training.command.line]
            folder = Path(file.path).parent
            if any(
                uses_output_as_model(one, training.output)
                or torchtune_uses_output(one, folder, training.output)
                for one in later
            ):
                continue
            for model_use in model_uses_without_adapter(file):
                if model_use.command in later and model_use.model == training.model:
                    yield self.finding(
                        f"no command uses {training.output}, which the training writes: this one uses"
                        f" {model_use.model}, from which training started, so {model_use.result} the base",
                        model_use.remedy.replace("FOLDER", training.output),
                        cases=[
                            self.case_of_command(model_use.command, model_use.text),
                            self.case_of_command(training.command, training.command.text.strip()),
                        ],
                    )
                    return


def _writes_to_a_base_path(command: ShellCommand) -> bool:
    """Does a command say, by where it writes, that the base is meant?"""
    return ABOUT_THE_BASE.search(" ".join(output_paths(command))) is not None
