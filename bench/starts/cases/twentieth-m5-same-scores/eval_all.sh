#!/bin/bash
for step in 100 200 300 400; do
    python eval_checkpoints.py --step $step
done
