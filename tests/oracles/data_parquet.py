# Writes small Parquet files to tests/data/data/ with pyarrow: the rows of sft.json in each codec, chats,
# and files that must be refused. Run after data.py. Needs pyarrow: python tests/oracles/data_parquet.py
# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parents[1] / "data" / "data"
ROWS = json.loads((FOLDER / "sft.json").read_text())["rows"]


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
    nothing = {"instruction": ["x", "y"], "output": ["1", None]}
    pq.write_table(pa.table(nothing), FOLDER / "missing-output.parquet")
    pq.write_table(pa.table({"instruction": [1, 2], "output": ["a", "b"]}), FOLDER / "numbers.parquet")
    # 12 kB that become 4 GB. (wrong-count.parquet is a find of fuzz_parquet.)
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 400_000, pa.int32()), ["y" * 10_000])
    swollen = pa.table({"instruction": ["x"] * len(long), "output": long})
    pq.write_table(swollen, FOLDER / "swollen.parquet", compression="none", store_schema=False, row_group_size=len(long))


if __name__ == "__main__":
    write_parquet()
