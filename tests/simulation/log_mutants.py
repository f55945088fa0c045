"""The rules of the log on one disk, broken one at a time: a test of `log_life.py`."""

from tests.simulation.mutants import Mutant

DISK_LOG = "penstock.log.disk_log"
MANIFEST = "penstock.log.manifest"
RECOVERY = "penstock.log.recovery"
COMMIT = "penstock.log.group_commit"

LOG_MUTANTS: tuple[Mutant, ...] = (
    # Acknowledging.
    Mutant(
        "log-acknowledged-without-a-sync",
        DISK_LOG,
        "            active.file.sync()\n            commit",
        "            commit",
    ),
    Mutant("log-acknowledged-before-the-sync", DISK_LOG, "wake(self._durable_offset)", "wake(self._end_offset)"),
    Mutant(
        "log-closed-without-a-sync",
        DISK_LOG,
        "        self._tail.active.file.sync()\n        self._save",
        "        self._save",
    ),
    Mutant("log-lone-marker-is-written-over", COMMIT, "                active.end_bytes += MARKER_BYTES\n", ""),
    # Names and the manifest.
    Mutant("log-names-are-not-synced-on-opening", RECOVERY, "    disk.sync_folder(folder)\n    found =", "    found ="),
    Mutant("log-manifest-acted-upon-too-early", MANIFEST, "        file.sync()\n        file", "        file"),
    Mutant(
        "log-manifest-is-not-synced",
        MANIFEST,
        "floor_offset), _FLOOR_AT)\n        file.sync()",
        "floor_offset), _FLOOR_AT)",
    ),
    Mutant("log-manifest-has-one-slot", MANIFEST, "manifest.sequence % 2 * SLOT_BYTES", "0"),
    Mutant("log-manifest-oldest-slot-wins", MANIFEST, "max(whole, key", "min(whole, key"),
    # Rolling and dropping.
    Mutant("log-new-segment-is-not-durable", COMMIT, "    file.sync()\n    runtime.disk.sync_folder(folder)\n", ""),
    Mutant("log-old-segment-is-not-durable", COMMIT, "if old.synced_bytes < old.end_bytes:", "if False:"),
    Mutant(
        "log-drop-is-not-remembered", DISK_LOG, "            self._save(start_offset=dropped[-1].next_offset)\n", ""
    ),
    Mutant(
        "log-leftovers-stay",
        RECOVERY,
        "            remove_segment(disk, folder, base)\n\n\ndef",
        "            pass\n\n\ndef",
    ),
    # The floor.
    Mutant(
        "log-floor-rises-before-the-sync",
        DISK_LOG,
        "self._floor.rise(self._durable_offset)",
        "self._floor.rise(self._end_offset)",
    ),
    # Recovery.
    Mutant("log-memory-is-trusted", RECOVERY, "        file.forget_cached()\n", ""),
    Mutant("log-marker-claims-too-much", COMMIT, "durable_bytes=self.active.synced_bytes", "durable_bytes=position"),
    Mutant(
        "log-kept-tail-is-not-synced",
        RECOVERY,
        "found.end_position)\n    file.sync()\n    if",
        "found.end_position)\n    if",
    ),
    Mutant(
        "log-torn-tail-stays",
        RECOVERY,
        "        _cut_torn_tail(runtime, folder, state, file, found)\n",
        "        pass\n",
    ),
)
