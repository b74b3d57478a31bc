"""A job: composition and validation of its configuration, and the process that runs it."""
