// Importance matrices in both forms. tests/oracles/gguf_quantize.py wrote the files.
// SPDX-License-Identifier: Apache-2.0
#include "files/weights/gguf/importance.h"

#include <cstring>
#include <limits>

#include "files/weights/gguf/gguf.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

using Columns = std::vector<float>;

TEST(Importance, IsReadFromEitherForm) {
  const Columns queries{1.0F / 3, 2.0F / 3, 1, 4.0F / 3};
  const Columns down{0.5F / 12, 0, 7.0F / 12, 1e-3F / 12, 2.0F / 12};
  for (const char* name : {"imatrix.gguf", "imatrix.dat"}) {
    const ImportanceMatrix matrix = read_importance(data_file(name));
    expect_same_bits(matrix.columns.at("blk.0.attn_q.weight"), queries, name);
    expect_same_bits(matrix.columns.at("blk.0.ffn_down.weight"), down, name);
  }
  // Nothing was counted.
  EXPECT_EQ(read_importance(data_file("imatrix.gguf")).columns.at("blk.0.ffn_up.weight"),
            Columns(3, 1));
}

TEST(Importance, IsFoundByNameAndHasTheWidthOfTheTensor) {
  const ImportanceMatrix matrix = read_importance(data_file("imatrix.dat"));
  const auto find = [&](const char* name, int64_t width) {
    return matrix.find(make_tensor_info(name, DType::F32, {2, width}));
  };
  EXPECT_EQ(find("blk.0.attn_q.weight", 4), matrix.columns.at("blk.0.attn_q.weight").data());
  EXPECT_EQ(find("blk.1.attn_q.weight", 4), nullptr);
  expect_refused([&] { find("blk.0.attn_q.weight", 8); },
                 {"imatrix.dat", "blk.0.attn_q.weight", "4 columns", "8", "another model"});
}

TEST(Importance, IsWrittenAsItIsRead) {
  const test::TempFolder folder;
  for (const char* name : {"imatrix.gguf", "imatrix.dat"}) {
    const ImportanceMatrix matrix = read_importance(data_file(name));
    const auto path = folder / "again.gguf";
    write_importance(matrix, path);
    EXPECT_EQ(read_importance(path).columns, matrix.columns) << name;
    EXPECT_EQ(GgufFile::open(path)->tensors().size(), 2 * matrix.columns.size());
  }
}

TEST(Importance, RefusesWhatIsNone) {
  const test::TempFolder folder;
  expect_refused([] { read_importance(data_file("quantize.gguf")); },
                 {"quantize.gguf", "NAME.in_sum2"});
  expect_refused([] { read_importance(data_file("gguf_types.json")); },
                 {"gguf_types.json", "the number of entries", "no importance matrix"});
  const std::string sound = read_file(data_file("imatrix.dat"));
  for (size_t size = 0; size + 16 < sound.size(); ++size)
    expect_refused([&] { read_importance(MemoryFile(sound.substr(0, size)).path()); }, {});
  const auto with_first_value = [&](float value) {
    std::string changed = sound;
    std::memcpy(changed.data() + 4 + 4 + 19 + 4 + 4, &value, sizeof(value));
    return write_text(folder, "changed.dat", changed);
  };
  EXPECT_EQ(read_importance(with_first_value(6)).columns.at("blk.0.attn_q.weight")[0], 2);
  for (const float bad : {-1.0F, std::numeric_limits<float>::infinity()})
    expect_refused([&] { read_importance(with_first_value(bad)); },
                   {"changed.dat", "blk.0.attn_q.weight", "negative"});
}

// An expert's matrices share an entry, which no model that snug writes has.
TEST(Importance, RefusesEntriesOfExperts) {
  const test::TempFolder folder;
  GgufWriter out(folder / "experts.gguf");
  const std::vector<float> sums(8, 1), counts(2, 1);
  out.declare({make_tensor_info("blk.0.ffn_up_exps.weight.in_sum2", DType::F32, {2, 4}),
               make_tensor_info("blk.0.ffn_up_exps.weight.counts", DType::F32, {2, 1})});
  out.write("blk.0.ffn_up_exps.weight.in_sum2", std::as_bytes(std::span(sums)));
  out.write("blk.0.ffn_up_exps.weight.counts", std::as_bytes(std::span(counts)));
  out.finish();
  expect_refused([&] { read_importance(folder / "experts.gguf"); },
                 {"experts.gguf", "blk.0.ffn_up_exps.weight", "one count"});
}

}  // namespace
}  // namespace snug::files
