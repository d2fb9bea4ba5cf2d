"""What runs inside the user's training process: it looks, measures, and writes a record.

It may live in another environment than truetune's own: these modules import the standard library, numpy, and the torch,
transformers, peft and trl of that environment, and of truetune `errors` and `parsing` alone.
`truetune.auditing` reads the record.

Where to begin:

- `trainer_hook`, `own_loop_hook`: `truetune run` waits for a Trainer, or for a loop of the user's own. Whatever fails
  there must not reach the program (`contain_own_failures_in_user_program`), so most of it runs in a forked copy
  (`forked_process`).
- `rehearsal_hook`: `truetune rehearse` puts miniatures in the place of models (`build_miniatures_instead_of_models`)
  and ends the process
  where training would begin. Whatever fails there ends it, too. Loops of the user's own are not rehearsed.
- `observe_run`: the record of a run, from both hooks and from `truetune.audit`. `laws` measures,
  `measuring` helps it.
- `rehearse_by_memorising_and_reciting`: the record of a rehearsal, which is that of a run and a recitation: rows are
  chosen
  (`choose_rows_to_recite`), memorised (`memorise_batch`) and recited (`generate_and_score_answers`).
- `run_record`: what crosses from there to here, as files.

Rules and reports run where no torch is. So what they share with the probe (a constant, a type) stands in a module that
imports none, as `run_record`, `watermarks` and `texts_of_row` do, and not in `memorise_batch` or
`observe_run`.
"""
