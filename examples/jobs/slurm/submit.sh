#!/bin/sh
# Submits the check, and the training that waits for it.
set -eu

check_job=$(sbatch --parsable check.sbatch)
check_job=${check_job%%;*} # on a federation of clusters the answer is "number;cluster"

# afterok: only after exit code 0. Without --kill-on-invalid-dep the training would stay in the queue for ever.
training_job=$(sbatch --parsable --dependency="afterok:$check_job" --kill-on-invalid-dep=yes train.sbatch)
echo "check: job $check_job, training: job ${training_job%%;*}"
