"""The token view over data of any size: rows by their number, drawn when they are asked for.

A local server answers a page with rows (`local_server`, `server_connections`). `row_index` knows
where each row of the files begins, `read_parts_of_files` reads from there, and a maker of rows
draws them: `token_rows_of_conversations` renders chats, `token_rows_of_encoded_folder` and
`token_rows_of_token_ids` draw what is ids already. `count_row_tokens_in_background` counts the tokens of
all rows (`count_conversation_tokens`, `token_counts_of_rows`), and `filter_and_sort_rows` chooses rows by these
figures. `row_service` ties them together for several threads.
"""
