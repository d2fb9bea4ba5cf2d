"""What reached the loss in a real trainer: the record of a run, with every token of its batches placed.

- `run_with_hook` starts a command with our hook below it and listens to its processes (`process_listener`), each of
  which writes a record (`truetune.probe`). `record_in_process` makes one in this process, `record_live_objects` one of
  a collator alone.
- `build_audit` makes an `Audit` of the records. `batch_lines` reads the lines of each batch, with `find_padding` and
  `document_borders`. `align_tokens` says of each token which text of which given row it is from: by the row's own
  rendering (`match_renderings`), else by its texts (`recognise_rows`, `row_fields`, `search_text`), else by the
  template's markers (`expected_tokens`).

Nothing here imports torch: an audit is judged where only the record is. `truetune.checks` has the rules.
"""
