"""Cuts a log back to an offset: a replica drops what its leader never had.

The manifest goes first. If power is lost after it, recovery removes the
segments beyond the active one, and the replica asks its leader again where the
two logs part; it never needs to know that a cut was under way.
"""

from dataclasses import replace

from penstock.log import manifest as manifests
from penstock.log.index import Index
from penstock.log.manifest import Manifest
from penstock.log.recovery import LogCorrupted, Recovered, remove_segment, scan_segment, seal
from penstock.log.scan import Scan
from penstock.log.segment import Segment, segment_name
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime


def cut_back(
    runtime: Runtime, folder: str, settings: LogSettings, manifest: Manifest, segments: list[Segment], offset: int
) -> Recovered:
    """Keep the batches wholly below ``offset``; return the log that is left. Blocks on the disk."""
    kept = [segment for segment in segments if segment.base_offset < offset] or segments[:1]
    base_offset = kept[-1].base_offset
    name = f"{folder}/{segment_name(base_offset)}"
    file = runtime.disk.open(name)
    try:
        found = scan_segment(
            folder, manifest, file, Index(base_offset, settings.index_every_bytes), until_offset=offset
        )
        _refuse_damage(name, found)
        epochs = tuple(entry for entry in manifest.epochs if entry[1] < found.next_offset)
        manifest = replace(manifest, active_offset=base_offset, epochs=epochs)
        # By itself, and first: the manifest may be durable before the floor when both are written at once.
        manifests.write_floor(runtime.disk, folder, manifest.log_id, found.next_offset)
        manifests.write(runtime.disk, folder, manifest)
        for segment in reversed(segments[len(kept) :]):
            remove_segment(runtime.disk, folder, segment.base_offset)
        seal(file, found, log_id=manifest.log_id)
    except BaseException:
        file.close()
        raise
    return Recovered(manifest, kept[:-1], found, file, was_clean=False)


def _refuse_damage(name: str, found: Scan) -> None:
    if found.damage is not None:
        raise LogCorrupted(name, found.damage.reason, position=found.damage.position, offset=found.next_offset)
