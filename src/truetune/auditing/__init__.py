"""What reached the loss in a real trainer: the record of a run, with every token of its batches placed.

- `run_with_hook` starts a command with our hook below it and listens to its processes
  (`listen_to_processes_and_hold_until_judged`), each of which writes a record (`truetune.probe`).
  `record_trainer_run_in_this_process` makes one in this process, `collect_live_objects_of_script` one of a collator
  alone.
- `build_audit` makes an `Audit` of the records. `read_lines_of_recorded_batch` reads the lines of each batch, with
  `find_padding` and `document_borders`. `align_batch_tokens_with_sources` says of each token which text of which given
  row it is from: by the row's own rendering (`find_rendered_rows_in_batch_ids`), else by its texts
  (`recognise_rows_in_text`, `list_row_texts_with_sources`, `search_row_fields_in_text`), else by the template's
  markers (`expected_tokens_without_rendering`).

Nothing here imports torch: an audit is judged where only the record is. `truetune.checks` has the rules.
"""
