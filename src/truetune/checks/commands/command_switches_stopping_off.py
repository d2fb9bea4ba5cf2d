"""A server option or a request switches the stop tokens off.

## What it does
Looks at the JSON in commands (`curl -d`, `--override-generation-config`) and at llama.cpp's `--ignore-eos`. It fires
for `ignore_eos`, and for a minimum number of tokens of at least half the maximum. Benchmark commands are skipped.

## Why it is bad
Each answer continues until the token limit, with unrelated text after its end, and `finish_reason` is always `length`.
Training with other stop tokens doesn't help.

## Example
```bash
vllm serve out/merged --override-generation-config '{"ignore_eos": true}'
```

## Use instead
```bash
vllm serve out/merged
```

## Fix safety
Safe, except for speed measurements, which need answers of equal length.

## References
- vLLM documentation, `SamplingParams`; llama.cpp, tools/server/README.md (`--ignore-eos`)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.find_server_replies_cut_at_limit import files_with_all_replies_cut
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.source.evidence.stop_tokens_switched_off import (
    MEASURES_SPEED,
    setting_preventing_stop_and_effect,
)
from truetune.errors import TruetuneError
from truetune.parsing.input_limits import REPLY
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.shell_commands import CommandFile, ShellCommand

LLAMA_CPP = ("llama-server", "llama-cli")
OPTION = "--ignore-eos"


class CommandSwitchesStoppingOff(CommandRule):
    code = "CMD055"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("never-stops",)
    severity = "warning"
    what = "commands that say when answers end"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[object]:
        """The places that the rule looks at: the commands that say when answers end."""
        for command in file.commands:
            if any(True for _ in _request_settings(command)):
                yield command

    def findings(self) -> Iterator[Finding]:
        file = self.subject
        if MEASURES_SPEED.search(file.text):
            return
        for command in file.commands:
            for settings in _request_settings(command):
                setting_and_effect = setting_preventing_stop_and_effect(settings)
                if setting_and_effect is None:
                    continue
                name, text = setting_and_effect
                replies = files_with_all_replies_cut(Path(file.path).parent)
                yield self.finding(
                    text,
                    f"remove {name}",
                    evidence=[one.text() for one in replies],
                    cases=[self.case_of_command(command, command.text.strip())],
                )


def _request_settings(command: ShellCommand) -> Iterator[dict[str, object]]:
    """The settings that a command is given, as JSON or as an option."""
    for word in command.words:
        body = word.rpartition("=")[2] if word.startswith("--") else word
        if body.lstrip().startswith("{"):
            try:
                settings = parse_json(body, REPLY)
            except (ValueError, TruetuneError):
                continue
            if isinstance(settings, dict):
                yield settings
    if OPTION in command.words and any(
        command.words_following(name) is not None for name in LLAMA_CPP
    ):
        yield {"ignore_eos": True}
