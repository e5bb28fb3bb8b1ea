// Hostile pickles. Nothing in the reader can run code; these tests see that each trick is refused
// by name and that none costs unbounded memory, time or stack.
// SPDX-License-Identifier: Apache-2.0
#include "files/weights/pth/pickle.h"

#include "files/weights/pth/pth.h"
#include "files/weights/pth/zip.h"
#include "formats_testing.h"

namespace snug::files {
namespace {

using namespace std::string_literals;

const std::string kStorage =
    "\x80\x02X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"s + "0X\3\0\0\0cpuK\4"s;

std::filesystem::path write_pickle(const test::TempFolder& folder, const std::string& pickle) {
  ZipWriter zip(folder / "bad.pth");
  zip.add("a/data.pkl", std::string_view(pickle));
  zip.add("a/data/0", std::string_view("0123456789abcdef"));
  zip.finish();
  return folder / "bad.pth";
}

void expect_pickle_refused(const std::string& pickle, const std::vector<std::string>& parts) {
  const test::TempFolder folder;
  std::vector<std::string> all = parts;
  all.push_back("bad.pth");
  expect_refused([&] { open_pth(write_pickle(folder, pickle)); }, all);
}

// A dictionary with one tensor of the given offset, sizes and strides (pickled) in four floats.
std::string one_tensor(const std::string& offset, const std::string& sizes,
                       const std::string& strides, const std::string& elements = "K\4",
                       const std::string& key = "0") {
  return "\x80\x02}X\1\0\0\0xctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"s +
         key + "X\3\0\0\0cpu"s + elements + "tQ" + offset + sizes + strides + "\x89}tRs.";
}

TEST(HostilePickle, TheHarmlessOneIsRead) {
  const test::TempFolder folder;
  const auto file = open_pth(write_pickle(folder, one_tensor("K\0"s, "K\2K\2\x86", "K\2K\1\x86")));
  EXPECT_EQ(file->find("x")->shape, (std::vector<int64_t>{2, 2}));
}

// As LitGPT's conversion names its storages.
TEST(HostilePickle, AStorageMayHaveANumber) {
  const test::TempFolder folder;
  std::string pickle = one_tensor("K\0"s, "K\2K\2\x86", "K\2K\1\x86");
  const std::string text = "X\1\0\0\0"s + "0", number = "K\0"s;
  pickle.replace(pickle.find(text), text.size(), number);
  const auto file = open_pth(write_pickle(folder, pickle));
  EXPECT_EQ(file->find("x")->shape, (std::vector<int64_t>{2, 2}));
}

TEST(HostilePickle, CodeIsRefusedByName) {
  expect_pickle_refused(
      "\x80\x02"
      "cos\nsystem\nX\4\0\0\0true\x85R."s,
      {"\"os.system\"", "nothing was run"});
  expect_pickle_refused("cposix\nsystem\n(S'true'\ntR."s, {"\"posix.system\""});
  expect_pickle_refused("\x80\x04\x8c\2os\x8c\6system\x93\x8c\4true\x85R."s, {"\"os.system\""});
  expect_pickle_refused("(S'true'\nios\nsystem\n."s, {"bad.pth"});
  expect_pickle_refused("(K\1ios\nsystem\n."s, {"\"os.system\""});
  expect_pickle_refused("(cos\nsystem\nK\1o."s, {"\"os.system\""});
  expect_pickle_refused(
      "\x80\x02"
      "cbuiltins\neval\n)\x81."s,
      {"\"builtins.eval\""});
  expect_pickle_refused("c__builtin__\ngetattr\n."s, {"\"__builtin__.getattr\""});
  expect_pickle_refused("ctorch.storage\n_load_from_bytes\n."s, {"torch.storage._load_from_bytes"});
  expect_pickle_refused("ctorch\nload\n."s, {"\"torch.load\""});
  expect_pickle_refused("ctorch\n_utils.os.system\n."s, {"torch._utils.os.system"});
}

TEST(HostilePickle, KnownNamesUsedWrongly) {
  expect_pickle_refused("ccollections\nOrderedDict\nK\1\x85R."s, {"no pairs"});
  expect_pickle_refused("ctorch\nFloatStorage\n)R."s, {"is called"});
  expect_pickle_refused("ctorch._utils\n_rebuild_tensor_v2\n)R."s, {"0 arguments"});
  expect_pickle_refused("ctorch._utils\n_rebuild_tensor_v2\n(K\1K\1K\1K\1tR."s, {"wrong parts"});
  expect_pickle_refused("K\1)R."s, {"no known name"});
  expect_pickle_refused("K\1}b."s, {"has none"});
  expect_pickle_refused("K\1Q."s, {"not a tuple"});
  expect_pickle_refused("(K\1K\2tQ."s, {"other than a storage"});
  expect_pickle_refused("(X\6\0\0\0modulectorch\nFloatStorage\nX\1\0\0\0"s + "0X\3\0\0\0cpuK\4tQ."s,
                        {"other than a storage"});
  expect_pickle_refused("(X\7\0\0\0storagectorch\ndevice\nX\1\0\0\0"s + "0X\3\0\0\0cpuK\4tQ."s,
                        {"storage of type torch.device"});
}

TEST(HostilePickle, BrokenStacks) {
  for (const std::string& pickle :
       {"."s,    "0."s, "t."s,    "a."s,    "s."s,     "u."s,     "R."s,      "b."s,
        "q\0."s, "2."s, "\x93."s, "\x85."s, "(\x85."s, "](a."s,   "}K\1(s."s, "K\1(0."s + "0."s,
        "1."s,   "e."s, "d."s,    "o."s,    "Q."s,     "(K\1d."s, "K\1K\2a."s})
    expect_pickle_refused(pickle, {"bad.pth"});
  expect_pickle_refused("h\7."s, {"memo 7 was never set"});
  expect_pickle_refused("j\xff\xff\xff\xff."s, {"memo 4294967295"});
  expect_pickle_refused("g99999999999999999999999\n."s, {"memo index"});
  expect_pickle_refused("\xfe."s, {"0xfe"});
  expect_pickle_refused("P1\n."s, {"0x50"});
  expect_pickle_refused("\x80\x06."s, {"protocol 6"});
  expect_pickle_refused("Iseven\n."s, {"\"seven\" is not an integer"});
  expect_pickle_refused("K"s, {"takes 1 bytes"});
}

TEST(HostilePickle, LyingLengths) {
  expect_pickle_refused("X\xff\xff\xff\xffx."s, {"4294967295 bytes"});
  expect_pickle_refused("\x8d\xff\xff\xff\xff\xff\xff\xff\xffx."s, {"18446744073709551615 bytes"});
  expect_pickle_refused("\x8b\xff\xff\xff\x7f."s, {"2147483647 bytes"});
  expect_pickle_refused("\x8e\0\0\0\0\0\0\0\x80."s, {"9223372036854775808 bytes"});
  expect_pickle_refused("c"s + std::string(100000, 'x'), {"module's name"});
  expect_pickle_refused("L"s + std::string(100000, '9') + "L\n."s, {"no state dict"});
}

TEST(HostilePickle, DeepAndCyclicStructures) {
  expect_pickle_refused(std::string(200000, ']') + std::string(199999, 'a') + ".",
                        {"no state dict"});
  expect_pickle_refused(std::string(200000, '(') + ".", {"bad.pth"});
  std::string tuples = ")";
  for (int i = 0; i < 200000; ++i) tuples += '\x85';
  expect_pickle_refused(tuples + ".", {"no state dict"});
  // A dictionary that is its own "model".
  expect_pickle_refused("}q\0X\5\0\0\0modelh\0s."s, {"no state dict"});
  // A list that holds itself.
  expect_pickle_refused("]q\0h\0a."s, {"no state dict"});
  // A call whose argument is a call, and so on.
  std::string calls = "ctorch._tensor\n_rebuild_from_type_v2\nq\0"s + "0)";
  for (int i = 0; i < 100; ++i)
    calls +=
        "q\1"
        "0h\0Nh\1\x87"s;
  expect_pickle_refused(calls +
                            "q\1"
                            "0h\0h\1R."s,
                        {"nested too deep"});
}

// Each level holds the former one ten times: 10^30 leaves, a few hundred values.
TEST(HostilePickle, SharedStructureIsNotWalked) {
  std::string bomb = "]q\0"s;
  for (int level = 0; level < 30; ++level)
    bomb += "](hh\0h\0h\0h\0h\0h\0h\0h\0h\0h\0eq\0"s.replace(2, 1, "");
  expect_pickle_refused(bomb + ".", {"no state dict"});
}

// A long tuple copied again and again must meet the limit before memory or patience does.
TEST(HostilePickle, CopyingInALoopMeetsALimit) {
  std::string pickle = "ccollections\nOrderedDict\nq\0("s;
  for (int i = 0; i < 1000; ++i) pickle += "NN\x86";
  pickle += "lq\1h\1\x85q\2"s;
  for (int i = 0; i < 20000; ++i) pickle += "h\0h\2R"s;
  expect_pickle_refused(pickle + ".", {"references between values"});
}

TEST(HostilePickle, ManyValuesMeetALimit) {
  expect_pickle_refused(std::string(9'000'000, 'N') + ".", {"more than"});
  expect_pickle_refused("N" + std::string(17'000'000, '2') + ".", {"more than"});
}

TEST(HostilePickle, TensorsOutsideTheirStorage) {
  const std::string zero = "K\0"s, two = "K\2\x85", one = "K\1\x85";
  expect_pickle_refused(one_tensor("K\3", two, one), {"\"x\"", "[2]", "exceeds the 4 elements"});
  expect_pickle_refused(one_tensor(zero, "K\5\x85", one), {"exceeds the"});
  expect_pickle_refused(one_tensor(zero, two, "K\4\x85"), {"exceeds the"});
  expect_pickle_refused(one_tensor(zero, "K\2K\2\x86", one), {"2 sizes, 1 strides"});
  expect_pickle_refused(one_tensor("J\xff\xff\xff\xff", two, one), {"offset -1"});
  expect_pickle_refused(one_tensor(zero, "J\xff\xff\xff\xff\x85", one), {"whole numbers"});
  expect_pickle_refused(one_tensor(zero, two, "J\xff\xff\xff\xff\x85"), {"whole numbers"});
  const std::string huge = "\x8a\x08\0\0\0\0\0\0\0\x40"s;
  expect_pickle_refused(one_tensor(zero, two, huge + "\x85"), {"exceeds the"});
  expect_pickle_refused(one_tensor(zero, huge + "\x85", zero + "\x85"), {"63 bits"});
  expect_pickle_refused(one_tensor(huge, two, one), {"exceeds the"});
  expect_pickle_refused(one_tensor(zero, huge + huge + "\x86", zero + zero + "\x86"), {"63 bits"});
  // Stride zero makes many elements of one; what memory they would take is not the file's to say.
  expect_pickle_refused(one_tensor(zero, "J\0\0\0\x40\x85"s, zero + "\x85"), {"exceeds the"});
  expect_pickle_refused(one_tensor(zero, two, one, "K\5"), {"claims 5 elements and has 4"});
  expect_pickle_refused(one_tensor(zero, two, one, "J\xff\xff\xff\xff"), {"-1 elements"});
  expect_pickle_refused(one_tensor(zero, two, one, "K\4", "7"),
                        {"storage \"7\" is not in the file"});
}

TEST(HostilePickle, NoStateDictSaysWhatIsThere) {
  expect_pickle_refused("}X\5\0\0\0epochK\1s."s, {"no state dict", "\"epoch\""});
  expect_pickle_refused("K\1."s, {"no state dict", "nothing"});
}

}  // namespace
}  // namespace snug::files
