# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/report/tensorboard_events.bin with TensorBoard's own record writer and messages
(made with tensorboard 2.21.0). tests/unit/report/metrics_files_test.cpp writes the same events and compares
every byte.

    python tests/oracles/tensorboard_events.py
    python tests/oracles/tensorboard_events.py --read FILE    # what TensorBoard reads back from a file
"""

import pathlib
import sys

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def scalar(time, step, tag, value):
    point = summary_pb2.Summary.Value(tag=tag, simple_value=value)
    return event_pb2.Event(wall_time=time, step=step, summary=summary_pb2.Summary(value=[point]))


def events():
    yield event_pb2.Event(wall_time=1700000000.25, file_version="brain.Event:2")
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    yield event_pb2.Event(wall_time=1700000000.25, step=8, session_log=start)
    yield scalar(1700000001.25, 8, "loss", 2.3125)
    yield scalar(1700000002.25, 300, "speed/tokens per second ü", 1e-3)
    yield scalar(1700000003.25, 1 << 40, "loss", float("nan"))
    yield scalar(1700000004.25, 0, "x" * 300, float("-inf"))


def write(path):
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for event in events():
            writer.write(event.SerializeToString())


def read(path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for event in EventFileLoader(path).Load():
        print(event.wall_time, event.step, str(event).replace("\n", " ")[:160])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2])
    else:
        folder = pathlib.Path(__file__).parents[1] / "data" / "report"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "tensorboard_events.bin")
