"""Every story of a consumer group ends as it is written.

After a change that is meant, `python -m tests.scenarios.test_group_stories` writes them
again: read what has become of them before it is kept.
"""

from pathlib import Path

import pytest

from tests.scenarios.group_story import tell

STORIES = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_of_a_group_is_told_as_written(path: Path) -> None:
    assert tell(path.read_text()) == path.read_text()


def test_there_are_stories_to_be_told() -> None:
    assert len(STORIES) >= 10


if __name__ == "__main__":
    for story in STORIES:
        story.write_text(tell(story.read_text()))
