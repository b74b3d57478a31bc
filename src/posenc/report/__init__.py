"""Reports of experiments: verdicts on claims, tables, figures and an HTML report."""
