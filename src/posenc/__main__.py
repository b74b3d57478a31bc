"""`python -m posenc`, the same as `posenc`."""

import sys

from posenc.cli import main

sys.exit(main())
