"""Writes the record of a run: run.json in its folder, true at every moment of it.

It is written when the run begins, with each checkpoint and at the end, whole each time. docs/record.md describes it,
docs/schema/run-1.json is its schema. Everything that shapes the weights is in `inputs`: by these a run is known again.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState

from truetune.checkpoint.base_fingerprint import fingerprint_base
from truetune.checkpoint.load_checkpoint import find_model_folder, is_checkpoint, read_checkpoint
from truetune.checkpoint.read_run_and_check_checkpoints import (
    RECORD_FORMAT,
    RUN_FILE,
    WHOLE_FILE,
    digest_file,
    list_checkpoints,
    list_files_with_digests,
    step_of_checkpoint_name,
)
from truetune.checkpoint.read_weight_files_and_faults import ADAPTER_FILE
from truetune.checks.findings import RANK, Finding
from truetune.data import write_atomically
from truetune.package import __version__
from truetune.settings.run_spec import RunSpec
from truetune.training.reward_names import names_with_digests_of_files

if TYPE_CHECKING:
    from truetune.training.claim_or_resume_run_folder import FolderClaim
    from truetune.training.load_encoded_held_out_and_packed_rows import TrainingData
    from truetune.training.prepare_model import PreparedModel
    from truetune.training.training_recipe import Recipe

LIBRARIES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "tokenizers",
    "bitsandbytes",
)
# A run may be taken up with another watch interval or another path to the same data. Each name here
# was weighed: does it change a weight?
IGNORED_SETTINGS = (
    "rehearsal",
    "watch",
    "select",
    "ignore",
    "fail_on",
    "allow_unjudged",
    "data",
    "eval_data",
    "tokenizer",
    "model",
)
"""Settings that do not shape the weights, or whose contents count and not their names"""
IGNORED_TRAINING = (
    "output_dir",
    "save_total_limit",
    "resume_from_checkpoint",
    "adapter",
    # Known by the digests of their files.
    "rewards",
)
IGNORED_TRAINER = (
    "output_dir",
    "report_to",
    "run_name",
    "disable_tqdm",
    "save_total_limit",
    "logging_dir",
    "project",
)

INPUT_NAMES = {
    "base": "the base model",
    "adapter": "the adapter that it starts from",
    "data": "the data, its tokenizer or template, or the version of truetune",
    "held out": "the held-out rows",
    "rewards": "the reward functions",
}


def collect_inputs_that_shape_weights(
    recipe: Recipe, data: TrainingData, *, processes: int
) -> dict[str, Any]:
    """Everything that shapes the weights of a run; only a run with equal inputs is resumed.

    Args:
        recipe: the filled settings.
        data: encoded rows, known by the key of their encoding.
        processes: of the run; another number gives other batches.
    """
    base = fingerprint_starting_model(recipe.spec)
    settings = recipe.spec.model_dump(mode="json", exclude=set(IGNORED_SETTINGS))
    # Popped without a default, so that a renamed field fails here rather than silently making every
    # run differ.
    for name in IGNORED_TRAINING:
        settings["training"].pop(name)
    settings["trainer"] = {k: v for k, v in settings["trainer"].items() if k not in IGNORED_TRAINER}
    # Not in the inputs of other methods: runs of earlier releases must be known again.
    rewards = names_with_digests_of_files(recipe.spec.training.rewards)
    return {
        **({"rewards": rewards} if rewards else {}),
        "settings": settings,
        # The key of the encoding: contents of the files, tokenizer, template and encode settings,
        # and not their paths.
        "data": data.encoded.manifest["key"],
        "held out": sorted(data.held_rows),
        "rows": len(data.train),
        "base": base and hash_inputs(base),
        "adapter": _digest_of_starting_adapter(recipe.spec.training.adapter),
        "processes": processes,
    }


def hash_inputs(inputs: Mapping[str, Any]) -> str:
    """A hash of a run's inputs: 20 bytes of blake2b, as hexadecimal digits."""
    return hashlib.blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=20).hexdigest()


def describe_input_differences(
    here: Mapping[str, Any], there: Mapping[str, Any], path: str = ""
) -> list[str]:
    """What differs between the inputs of two runs, one text each. A base that was not on this machine fits any."""
    texts: list[str] = []
    for name in sorted({*here, *there}):
        current, other, at = here.get(name), there.get(name), f"{path}{name}"
        # A base that the hub brings only at loading had no fingerprint when the run began.
        if current == other or (at == "base" and None in (current, other)):
            continue
        if isinstance(current, dict) and isinstance(other, dict):
            texts += describe_input_differences(
                current, other, "" if at == "settings" else f"{at}."
            )
        elif at in INPUT_NAMES:
            texts.append(INPUT_NAMES[at])
        else:
            texts.append(f"{at} ({other} there, {current} now)")
    return texts


def fingerprint_starting_model(spec: RunSpec) -> dict[str, Any] | None:
    """The fingerprint of the model that training starts from; None where it is not on this machine yet."""
    place = find_model_folder(spec.model or spec.tokenizer or "", Path())
    return (
        fingerprint_base(read_checkpoint(place))
        if place is not None and is_checkpoint(place)
        else None
    )


def _digest_of_starting_adapter(name: str | None) -> str | None:
    """The digest of the adapter that training starts from."""
    # The weights' digest and not the name: an adapter is often trained further in its own folder.
    place = find_model_folder(name, Path()) if name else None
    path = place / ADAPTER_FILE if place is not None else None
    return digest_file(path) if path is not None and path.is_file() else None


def library_versions() -> dict[str, str]:
    """The versions of truetune, Python and the libraries that train."""
    releases = {"truetune": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            releases[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return releases


class RunFile:
    """Keeps run.json up to date; of several processes the first one writes it."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.facts = dict(facts)
        self.writes = PartialState().is_main_process

    def update(self, **facts: Any) -> None:
        """Update the file: change some facts, and write all of them. Raises OSError."""
        self.facts |= facts
        if self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            body = json.dumps(
                _non_finite_as_text(self.facts), ensure_ascii=False, indent=1, default=str
            )
            # Whole each time: a killed process leaves the old record or the new one, and never half
            # of one.
            write_atomically.write_atomically(
                self.folder / RUN_FILE, body.encode("utf-8", "surrogatepass")
            )

    def record_early_end(self, status: str) -> None:
        """Record that the run is over before its end. Where the disk is full, the record stays as
        it was.
        """
        # This is called on the way out of another error, which is the one to show.
        with suppress(OSError):
            self.update(status=status)

    def record_checks(
        self, looks: Mapping[str, Iterable[Finding]], *, skipped: Iterable[str]
    ) -> None:
        """Record what was found before the first step, what of it was overruled (--force), and what
        was not checked.
        """
        findings_by_check = {what: list(findings) for what, findings in looks.items()}
        least = RANK[self.facts["settings"]["fail_on"]]
        forced = {
            f.rule
            for findings in findings_by_check.values()
            for f in findings
            if RANK[f.severity] >= least
        }
        as_records = {
            what: [_finding_dict(finding) for finding in findings]
            for what, findings in findings_by_check.items()
        }
        self.update(looks=as_records, skipped=list(skipped), forced=sorted(forced))

    def record_checkpoint(self, state: Any) -> None:
        """Record that a checkpoint has been made."""
        names = [
            path.name for path in list_checkpoints(self.folder) if (path / WHOLE_FILE).is_file()
        ]
        self.update(
            step=state.global_step,
            steps=state.max_steps,
            losses=_last_logged_losses(state),
            checkpoints=names,
        )

    def record_completion(self, state: Any, *, seconds: float, loss: float | None) -> None:
        """Record that the run is complete: its weights are in its folder. The listing of its files
        is made last.
        """
        losses = _last_logged_losses(state) | ({"held_out": loss} if loss is not None else {})
        files = list_files_with_digests(self.folder, below=False) if self.writes else {}
        files = {
            # run.json cannot list its own digest; dot files are locks and caches.
            name: entry
            for name, entry in files.items()
            if name != RUN_FILE and not name.startswith(".")
        }
        self.update(
            status="finished",
            saving=None,
            ended=_utc_now(),
            seconds=round(seconds, 1),
            step=state.global_step,
            steps=state.max_steps,
            losses=losses,
            files=files,
        )


def write_record_of_begun_run(
    place: FolderClaim,
    inputs: Mapping[str, Any],
    recipe: Recipe,
    ready: PreparedModel,
    data: TrainingData,
) -> RunFile:
    """Write the record of a run that begins, or is resumed.

    Args:
        place: the claim on its folder.
        inputs: of `collect_inputs_that_shape_weights`.
        recipe: the filled settings.
        ready: tokenizer and model.
        data: what is trained on.

    Raises:
        OSError: the folder can't be written.
    """
    now, releases = _utc_now(), library_versions()
    if place.checkpoint is not None:
        resumed = [
            *place.before["resumed"],
            {"at": now, "step": step_of_checkpoint_name(place.checkpoint), "versions": releases},
        ]
        record = RunFile(place.folder, {**place.before, "resumed": resumed})
    else:
        facts = {
            "format": RECORD_FORMAT,
            "status": "looking",
            "key": hash_inputs(inputs),
            "inputs": inputs,
            "began": now,
            "ended": None,
            "seconds": None,
            "resumed": [],
            "step": 0,
            "steps": recipe.steps,
            "losses": {},
            "checkpoints": [],
            "looks": {},
            "skipped": [],
            "forced": [],
            "versions": releases,
        }
        record = RunFile(place.folder, facts | _initial_facts(recipe, ready, data))
    record.update()
    return record


def _initial_facts(recipe: Recipe, ready: PreparedModel, data: TrainingData) -> dict[str, Any]:
    """The facts of a run that are known before its first step and do not change."""
    manifest, probes = data.encoded.manifest, ready.probes
    choices = [*recipe.choices, *data.choices, *ready.choices]
    trained = probes.terminator.token.id if probes.terminator and probes.terminator.token else None
    return {
        "method": recipe.method,
        "settings": recipe.spec.model_dump(mode="json"),
        "choices": [{"setting": c.setting, "value": c.value, "why": c.why} for c in choices],
        "seed": recipe.seed,
        "devices": _describe_devices(),
        "data": {
            **{name: manifest[name] for name in ("key", "inputs", "counts", "ledger")},
            "folder": str(data.encoded.folder),
            "documents": data.documents,
            "rows": len(data.train),
            "tokens": data.tokens,
            "held_out": sorted(data.held_rows),
        },
        "base": {
            "name": recipe.spec.model or recipe.spec.tokenizer,
            "fingerprint": fingerprint_starting_model(recipe.spec),
        },
        "stops": [
            {"token": stop.token, "id": stop.id, "trained": stop.id == trained}
            for stop in probes.stops
            if stop.id in ready.stops
        ],
        "pad": {"token": ready.tokenizer.pad_token, "id": ready.tokenizer.pad_token_id},
    }


def _describe_devices() -> dict[str, Any]:
    """The devices and the machine that the run is made on."""
    # Kinds and names of devices, because last digits of losses depend on them.
    cuda = torch.cuda.is_available()
    names = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
    )
    return {
        "kind": "cuda" if cuda else "cpu",
        "names": names or [platform.machine()],
        "system": platform.system(),
        "processes": PartialState().num_processes,
        "threads": torch.get_num_threads(),
    }


def _last_logged_losses(state: Any) -> dict[str, float]:
    """The last value of each loss in the log of a trainer."""
    losses: dict[str, float] = {}
    for entry in state.log_history:
        losses |= {
            name: entry[name] for name in ("loss", "eval_loss", "train_loss") if name in entry
        }
    return losses


def _non_finite_as_text(value: Any) -> Any:
    """A value for JSON: nan and the infinities, which JSON does not know, become text."""
    if isinstance(value, Mapping):
        return {str(key): _non_finite_as_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_non_finite_as_text(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _finding_dict(finding: Finding) -> dict[str, Any]:
    """A finding as run.json holds it."""
    names = ("rule", "code", "severity", "message", "remedy", "count", "total")
    return {**{name: getattr(finding, name) for name in names}, "evidence": list(finding.evidence)}


def _utc_now() -> str:
    """The time now in UTC, to the second, as text."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
