"""A server or an evaluation samples in a way that makes correct answers impossible.

## What it does
Checks the temperature, `top_p` and the penalties that commands set, with the table of ranges that
`generation-settings-distort-answers` uses for code: `--override-generation-config` of vLLM, `--gen_kwargs` of lm_eval,
and `--temp`, `--top-p`, `--repeat-penalty`, `--frequency-penalty` and `--presence-penalty` of llama.cpp.

## Why it is bad
A repetition penalty of 1.5 punishes every token that came before, in the prompt too: JSON keys, names and full stops
come out wrong. A temperature of 2 makes noise of the answers. Everything looks like a bad training.

## Example
```bash
vllm serve ./sft-merged --override-generation-config '{"temperature": 0.7, "repetition_penalty": 1.9}'
```

## Use instead
```bash
vllm serve ./sft-merged --override-generation-config '{"temperature": 0.7, "repetition_penalty": 1.05}'
```

## Fix safety
The answers change. If they loop without a penalty, the cause is in the training.

## References
- Keskar et al., CTRL (arXiv:1909.05858), section 4.1; vLLM documentation, engine arguments
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import GENERATION, limit_breaches, settings_with_limits
from truetune.checks.read_evaluation_harness_commands import find_harness_runs
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option

PAIR = re.compile(r"[\"']?(?P<name>[a-z_]+)[\"']?\s*[:=]\s*(?P<value>-?\d+(?:\.\d+)?)")
"""A setting in JSON, or in `temperature=0.7,top_p=0.9`"""
LLAMA_CPP = ("llama-server", "llama-cli")
OPTIONS_OF_LLAMA_CPP: Mapping[str, str] = {
    "--temp": "temperature",
    "--temperature": "temperature",
    "--top-p": "top_p",
    "--repeat-penalty": "repetition_penalty",
    "--frequency-penalty": "frequency_penalty",
    "--presence-penalty": "presence_penalty",
}


class SamplingOfCommand(NamedTuple):
    """What a command sets of the sampling."""

    command: ShellCommand
    option: str
    """That holds all of it; empty where each has an option of its own"""
    values: Mapping[str, str]


class CommandSamplingDistortsAnswers(CommandRule):
    code = "CMD253"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    severity = "warning"
    what = "commands that set how answers are sampled"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[SamplingOfCommand]:
        """The commands that set the temperature, a penalty or the like."""
        judged = set(settings_with_limits(GENERATION))
        for sampling in (*_sampling_in_one_option(file), *_sampling_of_llama_cpp(file)):
            values = {name: value for name, value in sampling.values.items() if name in judged}
            if values:
                yield sampling._replace(values=values)

    def findings(self) -> Iterator[Finding]:
        for sampling in self.examined_places(self.subject):
            for breach in limit_breaches(sampling.values, GENERATION):
                name = breach.limit.setting
                yield self.finding(
                    breach.text(breach.limit.says, sampling.values, name),
                    breach.text(breach.limit.fix, sampling.values, name),
                    severity=breach.limit.severity,
                    evidence=[breach.limit.source],
                    cases=[
                        self.case_of_command(
                            sampling.command,
                            f"{sampling.option} {name} {sampling.values[name]}".strip(),
                        )
                    ],
                )


def _sampling_in_one_option(file: CommandFile) -> Iterator[SamplingOfCommand]:
    """The settings that vLLM and lm_eval take as one value."""
    for server in find_vllm_server_commands(file):
        yield _sampling_of_option(server.command, server.options, "--override-generation-config")
    for run in find_harness_runs(file):
        yield _sampling_of_option(run.command, run.options, "--gen_kwargs")


def _sampling_of_option(
    command: ShellCommand, options: tuple[str, ...], option: str
) -> SamplingOfCommand:
    """The settings in the value of an option."""
    text = last_option(options, option) or ""
    values = {match["name"]: match["value"] for match in PAIR.finditer(text)}
    return SamplingOfCommand(command, option, values)


def _sampling_of_llama_cpp(file: CommandFile) -> Iterator[SamplingOfCommand]:
    """The settings that llama.cpp takes as options."""
    for command in file.commands:
        options = next(
            (words for name in LLAMA_CPP if (words := command.words_following(name)) is not None),
            None,
        )
        if options is None:
            continue
        given = {
            setting: last_option(options, option)
            for option, setting in OPTIONS_OF_LLAMA_CPP.items()
        }
        yield SamplingOfCommand(command, "", {name: one for name, one in given.items() if one})
