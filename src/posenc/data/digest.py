"""Content hashes, equal wherever the content is equal."""

import hashlib
import json
from typing import Any


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of `value`: key order and layout do not count."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
