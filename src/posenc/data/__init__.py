"""From documents to windows of tokens: corpora, tokenizers, the prepared cache, the data order."""
