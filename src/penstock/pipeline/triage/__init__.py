"""What triage knows beside the burials: marks of deploys, what the last run found, and how it is all told.

marks.py    the file of deploys, and with which of them a cause began
causes.py   a cause as it is told, and what the last run remembered
results.py  the files of a run
report.py   the page for people
"""
