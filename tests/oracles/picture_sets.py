# SPDX-License-Identifier: Apache-2.0
"""Small data sets of pictures in tests/data/picture_sets/, written with Hugging Face's own libraries: a saved
DatasetDict and Dataset, Parquet with row groups, captions in lists, rows without a picture. Run after pictures.py.

Needs datasets, pyarrow, pillow. Usage: python picture_sets.py
"""
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, Features, Image, Sequence, Value

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDER = DATA / "picture_sets"
NAMES = ["420.jpg", "rgba.png", "lossy.webp", "turned6.jpg", "palette4.png"]
CAPTIONS = ["a red square", "Grüße vom Meer", "   ", None, "a dog, a cat"]


def bytes_of(name):
    return (DATA / "pictures" / name).read_bytes()


def save(dataset, name):
    dataset.save_to_disk(FOLDER / name)
    # Counts and times that differ from run to run, and that nothing reads.
    for info in (FOLDER / name).rglob("dataset_info.json"):
        info.unlink()
    for state in (FOLDER / name).rglob("state.json"):
        kept = {key: json.loads(state.read_text())[key] for key in ("_data_files", "_split")}
        state.write_text(json.dumps(kept, indent=1) + "\n")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    images = [{"bytes": bytes_of(name), "path": name} for name in NAMES]
    features = Features({"id": Value("int64"), "image": Image(), "text": Value("string")})
    columns = {"id": list(range(5)), "image": images, "text": CAPTIONS}
    train = Dataset.from_dict(columns, features=features)
    save(DatasetDict({"train": train, "test": train.select([1])}), "dict")
    lists = Features({"photo": Image(), "captions": Sequence(Value("string"))})
    several = [["one", "two"], [], ["three"], [None, "four"], ["five"]]
    save(Dataset.from_dict({"photo": images, "captions": several}, features=lists), "lists")
    without = {"image": [images[0], None], "text": ["one", "two"]}
    save(Dataset.from_dict(without, features=Features({"image": Image(), "text": Value("string")})), "nulls")
    save(Dataset.from_dict({"instruction": ["Add 1 and 2.", "Say hi."], "output": ["3", "hi"]}), "text")
    table = pa.table({"image": images, "caption": pa.array(CAPTIONS, pa.large_string())})
    (FOLDER / "parquet" / "data").mkdir(parents=True)
    for part, rows in (("train-00000-of-00002", slice(0, 3)), ("train-00001-of-00002", slice(3, 5))):
        begin, end, _ = rows.indices(5)
        pq.write_table(table.slice(begin, end - begin), FOLDER / "parquet" / "data" / f"{part}.parquet", row_group_size=2)


if __name__ == "__main__":
    main()
