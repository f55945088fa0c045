"""Where the files are, and which tools of this machine check them."""

import shutil
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed; make installs it as root")
