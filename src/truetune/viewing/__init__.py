"""The token view over data of any size: rows by their number, drawn when they are asked for.

A local server answers a page with rows (`local_server`, `server_connections`). `row_index` knows where each row of the
files begins, `file_readers` reads from there, and a maker of rows draws them: `conversation_rows` renders chats,
`encoded_rows` and `token_id_rows` draw what is ids already. `row_service` ties them together for several threads.
"""
