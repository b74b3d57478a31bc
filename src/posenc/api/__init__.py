"""The Python API (`posenc.train`, `posenc.load`, `posenc.results`) that the commands build on."""
