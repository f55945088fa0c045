"""`python -m tests.golden` writes what is kept again."""

from tests.golden import KEPT
from tests.golden.documents import DOCUMENTS
from tests.golden.formats import FORMATS, as_text
from tests.golden.loaded import LOADED


def main() -> None:
    KEPT.mkdir(exist_ok=True)
    for name, samples in FORMATS.items():
        (KEPT / name).write_text(as_text(samples()))
    for name, write in (DOCUMENTS | LOADED).items():
        (KEPT / name).write_text(write())


if __name__ == "__main__":
    main()
