"""The figures of a report, one module for each kind: from panels to what is drawn."""
