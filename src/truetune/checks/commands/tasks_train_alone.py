"""Each task of a job starts a training of its own, because nothing tells the tasks of each other.

## What it does
Takes the Python script that srun or mpirun starts in several tasks (in the line, in `bash -c '...'`, in a script beside
the job), and a loop that starts one command on each GPU with nothing else that differs. It fires where the script
trains, no launcher comes before it, and neither the job nor the script sets RANK and WORLD_SIZE or names a variable of
Slurm or MPI. Silent where the number of tasks is not plain, for Lightning, DeepSpeed, submitit and others that find
their tasks by themselves, and where the script is not beside the job.

## Why it is bad
srun sets SLURM_PROCID, and no RANK, LOCAL_RANK or WORLD_SIZE, by which torch, accelerate and the Trainer see other
processes. Each task takes itself for the only one: it has all rows, the same seed and the same output folder. All GPUs
are busy, the job takes as long as on one, each record is printed once for each task, and the tasks overwrite one
another's checkpoints.

## Example
```yaml
files:
  train.py: |
    from transformers import Trainer
    trainer = Trainer(model=model, train_dataset=rows)
    trainer.train()
  job.sbatch: |
    #!/bin/bash
    #SBATCH --nodes=1
    #SBATCH --ntasks-per-node=4
    #SBATCH --gpus-per-task=1
    srun python train.py
```

## Use instead
```yaml
files:
  train.py: |
    from transformers import Trainer
    trainer = Trainer(model=model, train_dataset=rows)
    trainer.train()
  job.sbatch: |
    #!/bin/bash
    #SBATCH --nodes=1
    #SBATCH --ntasks-per-node=1
    #SBATCH --gpus-per-node=4
    srun torchrun --nproc-per-node 4 train.py
```

## Fix safety
The effective batch becomes as many times as large as there were trainings: lower the accumulation, or choose the rate
for it.

## References
- Slurm documentation, srun ("OUTPUT ENVIRONMENT VARIABLES"); PyTorch documentation, `init_process_group` (env://)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.find_trainings_without_process_group import LoneTrainings, find_lone_trainings
from truetune.checks.findings import Finding
from truetune.checks.node_rendezvous import node_count_of_job
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile


class TasksTrainAlone(CommandRule):
    code = "CMD135"
    symptoms = ("several-gpus",)
    severity = "error"
    stability = "preview"
    what = "trainings that are started in several tasks without a launcher"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[LoneTrainings]:
        """The places that the rule looks at: the trainings that are started in several tasks without a launcher."""
        yield from find_lone_trainings(file)

    def findings(self) -> Iterator[Finding]:
        for found in self.examined_places(self.subject):
            yield self.finding(
                f"{found.starter} starts {found.script} {found.times} times ({found.setting}), and nothing sets RANK,"
                f" LOCAL_RANK and WORLD_SIZE: {found.times} trainings run that know nothing of each other, each on all"
                " rows, with the same settings. The job takes as long as one of them, and they overwrite one another's"
                " checkpoints",
                _advise_one_training_for_tasks(found, self.subject),
                severity="error" if found.is_meant_for_several else "warning",
                cases=[
                    self.case_at(found.line, found.setting),
                    self.case_of_command(found.command, found.command.text[:300]),
                ],
            )


def _advise_one_training_for_tasks(found: LoneTrainings, file: CommandFile) -> str:
    """The edit that makes one training of them."""
    if not found.is_meant_for_several:
        return (
            "start it once; or wrap the model in DistributedDataParallel, and start it with torchrun"
            f" --nproc-per-node {found.times}"
        )
    if found.starter != "srun":
        return f"start it once, with torchrun --nproc-per-node {found.times} {found.script}"
    nodes = node_count_of_job(file) or 1
    each = max(1, found.times // nodes)
    meeting = f" --nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint FIRST_NODE:29500"
    launch = f"torchrun{meeting if nodes > 1 else ''} --nproc-per-node {each} {found.script}"
    return (
        f"set --ntasks-per-node=1 and --gpus-per-node={each}, and start `srun {launch}`; or set in each task, before"
        " python: RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS, with MASTER_ADDR and"
        " MASTER_PORT"
    )
