"""Training: transformers, TRL, peft and accelerate, fed with our encodings, guarded before and watched meanwhile.

`run_training` is the whole of a run. What it calls stands in the order of the work: `training_recipe` (settings),
`load_encoded_held_out_and_packed_rows` or `preference_rows` (data), `prepare_model` (tokenizer and model),
`trainer_with_supervised_token_loss` or
`preference_trainers`, `preflight_checks`, `watch`, `save_checkpoints` and `write_run_record`. `merge` and `export` make
other files of a trained model, proved by `prove_merge_or_export`.
"""
