# Writes small Parquet files to tests/data/data/ with pyarrow: the rows of sft.json in each codec, chats,
# and files that must be refused. Run after data.py. Needs pyarrow: python tests/oracles/data_parquet.py
# SPDX-License-Identifier: Apache-2.0
import datetime
import decimal
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parents[1] / "data" / "data"
ROWS = json.loads((FOLDER / "sft.json").read_text())["rows"]


def all_types():
    """A column of every type that Parquet keeps, with a null in each."""
    call = {"name": "f", "arguments": {"n": 7, "deep": True, "x": 2.5, "list": [1, 2], "none": None}}
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    return {
        "truth": pa.array([True, False, None]),
        **{str(kind): pa.array([1, 100, None], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
        "large": pa.array([2**63 + 1, 2**64 - 1, None], pa.uint64()),
        "half": pa.array([1.5, -0.25, None], pa.float16()),
        "float": pa.array([0.5, -3.25, None], pa.float32()),
        "double": pa.array([0.1, 1e300, None]),
        "text": pa.array(["Köln", "", None]),
        "large_text": pa.array(["a", "b", None], pa.large_string()),
        "coded": pa.array(["a", "b", None]).dictionary_encode(),
        "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2.25"), None], pa.decimal128(6, 2)),
        "date": pa.array([moment.date(), moment.date(), None]),
        "moment": pa.array([moment, moment.replace(microsecond=250000), None], pa.timestamp("us")),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "large_list": pa.array([[True], [], None], pa.large_list(pa.bool_())),
        "fixed_list": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int16(), 2)),
        "map": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32())),
        "nested": pa.array([{"calls": [call]}, {"calls": []}, None]),
        "nothing": pa.nulls(3),
    }


def write_types():
    """As the tools of chats, which are handed to the template as they are."""
    types = pa.table(all_types())
    offsets = pa.array(range(len(types) + 1), pa.int32())
    tools = pa.ListArray.from_arrays(offsets, types.to_struct_array().combine_chunks())
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    pq.write_table(pa.table({"messages": [chat] * len(types), "tools": tools}), FOLDER / "types.parquet")
    (FOLDER / "types.json").write_text(json.dumps(types.to_pylist(), default=str, ensure_ascii=False, indent=0) + "\n")


def write_parquet():
    plain = pa.table({key: [row[key] for row in ROWS] for key in ROWS[0]} | {"score": list(range(len(ROWS)))})
    turn = lambda role, content: {"role": role, "content": content}
    chats = [
        [turn("system", "Be brief."), turn("user", "Hi"), turn("assistant", "Hello")],
        [turn("user", "1?"), turn("assistant", "one"), turn("user", "2?"), turn("assistant", "two")],
    ]
    for codec in ("snappy", "zstd", "gzip", "none"):
        pq.write_table(plain, FOLDER / f"rows-{codec}.parquet", compression=codec, row_group_size=4)
    pq.write_table(pa.table({"messages": chats}), FOLDER / "chats.parquet")
    pq.write_table(pa.table({"conversations": [["q1", "a1"], ["q2", "a2"]]}), FOLDER / "turns.parquet")
    pq.write_table(pa.table({"question": ["q1", "q2"], "answer": ["a1", "a2"], "number": [1, 2]}), FOLDER / "pairs.parquet")
    seen = [[turn("user", "<image>What?"), turn("assistant", "a kite")], [turn("user", "And?"), turn("assistant", "two")]]
    pictures = [[{"bytes": None, "path": "1.png"}], [{"bytes": None, "path": "2.png"}]]
    pq.write_table(pa.table({"messages": seen, "images": pictures}), FOLDER / "pictures.parquet")
    stored = [[{"bytes": b"PNG", "path": "1.png"}], []]
    pq.write_table(pa.table({"messages": seen, "images": stored}), FOLDER / "stored-pictures.parquet")
    pq.write_table(pa.table({"id": [1, 2], "score": [3, 4]}), FOLDER / "scores.parquet")
    write_types()
    nothing = {"instruction": ["x", "y"], "output": ["1", None]}
    pq.write_table(pa.table(nothing), FOLDER / "missing-output.parquet")
    pq.write_table(pa.table({"instruction": [1, 2], "output": ["a", "b"]}), FOLDER / "numbers.parquet")
    # 12 kB that become 4 GB. (wrong-count.parquet is a find of fuzz_parquet.)
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 400_000, pa.int32()), ["y" * 10_000])
    swollen = pa.table({"instruction": ["x"] * len(long), "output": long})
    pq.write_table(swollen, FOLDER / "swollen.parquet", compression="none", store_schema=False, row_group_size=len(long))


if __name__ == "__main__":
    write_parquet()
