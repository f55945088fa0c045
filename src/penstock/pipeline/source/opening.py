"""Opens the histories that the options of a read name."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.pipeline.source.options import ReadOptions
from penstock.pipeline.source.ranges import Histories


@contextmanager
def open_histories(options: ReadOptions) -> Iterator[Histories]:
    """Lend what the options name. Imported when it is asked for: each needs what the other does not."""
    if options.path and options.topic:
        from penstock.pipeline.source.topic_folder import FolderTopic  # noqa: PLC0415

        yield FolderTopic(options.path, options.topic, options.partitions)
        return
    if options.path:
        from penstock.pipeline.source.folder import FolderHistories  # noqa: PLC0415

        yield FolderHistories(options.path)
        return
    if options.is_database:
        from penstock.pipeline.source.database import open_database  # noqa: PLC0415

        with open_database(options.url, options.schema) as histories:
            yield histories
        return
    from penstock.pipeline.http import Asking  # noqa: PLC0415
    from penstock.pipeline.source.server import ServerHistories  # noqa: PLC0415

    with Asking(options.url, options.key) as asking:
        if options.topic:
            from penstock.pipeline.source.topics import ServerTopic  # noqa: PLC0415

            yield ServerTopic(asking, options.topic, options.partitions)
        else:
            yield ServerHistories(asking)
