"""What others have in their hands, kept as it is: bytes on disk and on the wire, documents, and what an import loads.

`python -m tests.golden` writes the folder `kept` again. A change in it is a change of a format or of an API: it needs a
new version of the format, or a line in CHANGELOG.md.
"""

from pathlib import Path

KEPT = Path(__file__).parent / "kept"
