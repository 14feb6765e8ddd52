"""The on-call page: every run that a service watches, live, in a browser (extra `web`: starlette and uvicorn).

Both are small, typed and kept by the same people for years; the page holds a connection open for each reader (server-sent
events), which the thread-per-connection server of `exporters.http` is not made for.
"""
