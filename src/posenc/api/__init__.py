"""The Python API (`posenc.train`, `posenc.load`, `posenc.results`).

The other modules implement commands such as `posenc evaluate` and `posenc tune`.
"""
