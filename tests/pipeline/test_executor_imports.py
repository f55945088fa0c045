"""What a Python worker of Spark imports for each kind of task: executors get a zip, and have little else."""

import json
import subprocess
import sys

# What a server needs and executors do not have.
_FOREIGN = {
    "msgspec",
    "httptools",
    "typer",
    "uvloop",
    "starlette",
    "prometheus_client",
    "crc32c",
    "adbc_driver_manager",
}
_READING = {"contract", "history_arrow", "version"}
_FILES = {"core", "frame", "log", "runtime", "store", "telemetry"}
# By task: what it imports of the pipeline, and what that may bring: packages of ours, those of others, and how many
# modules of the pipeline.
_TASKS: dict[str, tuple[set[str], set[str], int]] = {
    "source.reader source.server": (_READING, set(), 11),
    "source.reader source.folder": (_READING | _FILES, {"crc32c"}, 11),
    "source.reader source.topic_folder": (_READING | _FILES | {"streams"}, {"crc32c"}, 12),
    "source.reader source.database": (_READING, {"adbc_driver_manager"}, 10),
    "sink.writer": ({"contract", "core", "frame", "version", "wire"}, set(), 18),
    "signals.lines": ({"contract", "core", "version"}, set(), 3),
    "audit.look": (_READING, set(), 4),
    "whatif.simulation": ({"contract", "core", "frame", "version"}, set(), 4),
    "archive.files": (_READING, set(), 13),
}
# A worker has these before it imports anything of ours; each task is tried in a process of its own.
_PROGRAM = """
import importlib, json, os, sys
import numpy, pyarrow, pyspark.sql.datasource

for task in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        for module in task.split():
            importlib.import_module(f"penstock.pipeline.{module}")
        print(json.dumps([task, *sys.modules]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_task_imports_no_more_than_it_needs() -> None:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(list(_TASKS))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {task: set(modules) for task, *modules in map(json.loads, done.stdout.splitlines())}

    assert loaded.keys() == _TASKS.keys()
    for task, (packages, foreign, most) in _TASKS.items():
        ours = [name.split(".") for name in loaded[task] if name.startswith("penstock.")]
        assert {name[1] for name in ours} - {"pipeline"} <= packages, task
        assert {name.partition(".")[0] for name in loaded[task]} & _FOREIGN == foreign, task
        assert sum(name[1] == "pipeline" for name in ours) <= most, task
