"""A retriever encodes texts with other options than it was trained with.

## What it does
Compares the options of Tevatron's `driver.train` with those of `driver.encode` in the same file, if the encoding loads
what the training writes: `--pooling`, `--normalize`, `--append_eos_token`, and the prefix of queries (with
`--encode_is_query`) or of passages.

## Why it is bad
Tevatron stores none of these options with the model. With another pooling, or without the prefix, each embedding is
not the one that the training compared, and the ranking is worse. Nothing fails.

## Example
```bash
python -m tevatron.retriever.driver.train --output_dir out --model_name_or_path mistralai/Mistral-7B-v0.1 \\
  --query_prefix "Query: " --passage_prefix "Passage: " --pooling eos --append_eos_token --normalize
python -m tevatron.retriever.driver.encode --model_name_or_path out --passage_prefix "Passage: " --pooling eos \\
  --append_eos_token --normalize --encode_is_query --encode_output_path q.pkl
```

## Use instead
```bash
python -m tevatron.retriever.driver.train --output_dir out --model_name_or_path mistralai/Mistral-7B-v0.1 \\
  --query_prefix "Query: " --passage_prefix "Passage: " --pooling eos --append_eos_token --normalize
python -m tevatron.retriever.driver.encode --model_name_or_path out --query_prefix "Query: " --pooling eos \\
  --append_eos_token --normalize --encode_is_query --encode_output_path q.pkl
```

## Fix safety
Giving the encoding the options of the training is safe. Indexes that were made otherwise have to be made again.

## References
- texttron/tevatron#146 (another length at encoding: NDCG 0.03), oscardvs/zoteus#51
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.commands.evidence.options_of_python_modules import (
    module_of_command,
    options_of_command,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand

SHARED_OPTIONS = ("pooling", "normalize", "append_eos_token")
MODEL_OPTIONS = ("model_name_or_path", "lora_name_or_path")


class EncodedOtherwiseThanTrained(CommandRule):
    code = "CMD270"
    fault = Fault.EMBEDDINGS_USED_OTHERWISE
    symptoms = ("odd-metrics",)
    severity = "error"
    what = "commands that encode texts with a retriever which the file trains"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[ShellCommand]:
        """The encodings of a file that load what a training of it writes."""
        trained = {
            options_of_command(one).get("output_dir", "")
            for one in _commands_of_driver(file, "train")
        }
        for command in _commands_of_driver(file, "encode"):
            options = options_of_command(command)
            if trained & {options.get(name) for name in MODEL_OPTIONS}:
                yield command

    def findings(self) -> Iterator[Finding]:
        """Findings on encodings whose options differ from the training's."""
        for command in self.examined_places(self.subject):
            options = options_of_command(command)
            models = {options.get(name) for name in MODEL_OPTIONS}
            training = next(
                one
                for one in map(options_of_command, _commands_of_driver(self.subject, "train"))
                if one.get("output_dir") in models
            )
            different = _different_options(training, options)
            if not different:
                continue
            parts = [
                f"{name} is {_option_value_in_words(options, name)}, and was {_option_value_in_words(training, name)}"
                for name in different
            ]
            yield self.finding(
                f"texts are encoded otherwise than in training: {'; '.join(parts)}",
                "give driver.encode the options of driver.train",
                cases=[self.case_of_command(command, f"--{different[0]}")],
            )


def _commands_of_driver(file: CommandFile, name: str) -> Iterator[ShellCommand]:
    """The commands of a file that start this driver of Tevatron."""
    for command in file.commands:
        module = module_of_command(command)
        if module.startswith("tevatron.") and module.endswith(f"driver.{name}"):
            yield command


def _different_options(training: Mapping[str, str], encoding: Mapping[str, str]) -> list[str]:
    """The options that an encoding has to share with the training, and that differ."""
    prefix = "query_prefix" if "encode_is_query" in encoding else "passage_prefix"
    names = (*SHARED_OPTIONS, prefix)
    return [name for name in names if training.get(name, "") != encoding.get(name, "")]


def _option_value_in_words(options: Mapping[str, str], name: str) -> str:
    """An option's value for a message."""
    return repr(options[name]) if name in options else "not given"
