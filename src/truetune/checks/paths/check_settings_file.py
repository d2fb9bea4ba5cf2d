"""Checks a file of settings, and notes the run that it describes: its data, its tokenizer, what it
sets.
"""

from __future__ import annotations

from truetune.checks.config.demo_data_trained_own_rows_unused import trains_demo_data_alone
from truetune.checks.inspect_tokenized import find_folder_of_tokenized_rows
from truetune.checks.judge_settings import judge_settings
from truetune.checks.judgement import NotJudged
from truetune.checks.paths.explain_missing_tokenizer import why_tokenizer_is_missing
from truetune.checks.paths.paths_check_state import PathsCheck
from truetune.checks.reports import Subject
from truetune.settings.config import Config
from truetune.settings.recognise_input_kind import title_of_kind
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.registry import config_readers


def check_settings_file(path: str, seen: PathsCheck) -> None:
    """Judge a file of settings, and note the run that it describes, if its data and tokenizer are
    on this machine.
    """
    config = read_config(path, seen.spec.trained_by)
    if not config_readers()[config.stack].trains:
        seen.judged.append(judge_settings(config, seen.spec, seen.uses))
        seen.subjects.append(
            Subject(title_of_kind(config.stack), path, (("keys of", config.version),))
        )
        return
    run = _run_of_config(config, seen.spec)
    seen.trainers.add_config(config)
    seen.judged.append(judge_settings(config, seen.spec, seen.uses))
    facts = [
        ("keys of", config.version),
        (
            "trains by",
            run.training.method if _do_settings_train(config) else "nothing (do_train is not set)",
        ),
        *(("note", note) for note in config.notes),
    ]
    if not run.data and trains_demo_data_alone(config):
        seen.demo_config = path
    if not run.data:
        # Rows that are named beside it are those that it trains.
        seen.joined = seen.joined or _does_stack_join_texts(config)
        unjudged = NotJudged(
            "the data of these settings",
            "none of its files is on this machine",
            place=path,
            unlock="name DATA and -t TOKENIZER",
            asked=False,
        )
        seen.add_not_judged(unjudged)
    else:
        is_users = bool(seen.spec.tokenizer or seen.spec.model)
        seen.no_tokenizer = why_tokenizer_is_missing(run, is_users=is_users)
        if seen.no_tokenizer:
            run = run.model_copy(update={"tokenizer": None, "model": None})
        seen.run, seen.joined = run, _does_stack_join_texts(config)
        if _is_prompt_the_trainers_own(config, seen):
            seen.own_prompt = True
            facts.append(
                (
                    "prompt",
                    "the trainer's own, not the tokenizer's template: only rules on rows and pairs apply",
                )
            )
    seen.subjects.append(Subject(title_of_kind(config.stack), path, tuple(facts)))


def _is_prompt_the_trainers_own(config: Config, seen: PathsCheck) -> bool:
    """Does the trainer write its prompts by a template that is not the tokenizer's?

    torchtune's templates have the marks of the published ones: who names a tokenizer beside a recipe says which.
    """
    return config.own_prompt and not (config.stack == "torchtune" and seen.spec.tokenizer)


def _run_of_config(config: Config, named: RunSpec) -> RunSpec:
    """The run that settings describe, with what the user names instead, and with the rows that its trainer cached."""
    over = {name: getattr(named, name) for name in named.model_fields_set}
    # TRL's own default cuts at 1,024, and its table of defaults knows where: a limit from here would override that.
    length = {} if config.stack == "trl" else {"max_length": config.limit}
    run = config.spec.model_copy(update=length | over)
    # What the trainer cached is what it will train on, whatever the rows say by now.
    return run.model_copy(update={"data": (*run.data, *find_folder_of_tokenized_rows(config))})


def _do_settings_train(config: Config) -> bool:
    """Do these settings train? LLaMA-Factory merges, serves and evaluates by the same files."""
    return config.stack != "llama-factory" or bool(config.raw.get("do_train"))


def _does_stack_join_texts(config: Config) -> bool:
    """Does the stack make rows of its own out of the texts, so that none is cut at the limit?"""
    training, sets = config.spec.training, config.raw.get("datasets")
    kinds = (
        [str(item.get("type")) for item in sets if isinstance(item, dict)]
        if isinstance(sets, list)
        else []
    )
    wraps = bool(training.packing) and training.packing_strategy in ("wrapped", "bfd_split")
    return wraps or training.method == "pretrain" or "completion" in kinds
