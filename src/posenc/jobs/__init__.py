"""One job: its configuration composed and validated, and the process that runs it."""
