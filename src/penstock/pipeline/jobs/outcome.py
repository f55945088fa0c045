"""What a job tells, under the name that jobs know it by; it stands beside them, as what jobs use tells it too."""

from penstock.pipeline.outcome import JobFailed, Outcome, Progress, Silent, Table

__all__ = ["JobFailed", "Outcome", "Progress", "Silent", "Table"]
