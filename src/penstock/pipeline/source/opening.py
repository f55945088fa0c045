"""Opens the histories that the options of a read name."""

from penstock.pipeline.source.options import ReadOptions
from penstock.pipeline.source.ranges import Histories


def open_histories(options: ReadOptions) -> Histories:
    """Return what the options name. Imported when it is asked for: each needs what the other does not."""
    if options.path:
        from penstock.pipeline.source.folder import FolderHistories  # noqa: PLC0415

        return FolderHistories(options.path)
    from penstock.pipeline.source.server import ServerHistories  # noqa: PLC0415

    return ServerHistories(options.url, options.key)
