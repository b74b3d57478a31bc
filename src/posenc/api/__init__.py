"""The Python API, `posenc.train`, `posenc.load` and `posenc.results`, on which commands build."""
