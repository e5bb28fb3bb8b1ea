// The stack machine for the opcodes (protocols 0 to 5) that any version of torch.save writes;
// others are refused by number.
// SPDX-License-Identifier: Apache-2.0
#include "files/weights/pth/pickle.h"

#include <fmt/format.h>

#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "files/weights/pth/pickle_globals.h"

namespace snug::files {
namespace {

using Kind = PickleValue::Kind;

// A state dict of 100,000 tensors makes 3 million values; this bounds a hostile file.
constexpr size_t kMaxValues = size_t{8} << 20;
// Bounds memory and time for lists that are copied repeatedly.
constexpr size_t kMaxCopies = size_t{16} << 20;
constexpr int kMaxNestedCalls = 4;

class Machine {
 public:
  explicit Machine(ByteReader& reader) : reader_(reader) {}

  Pickle run() {
    while (true) {
      const uint8_t op = reader_.u8("a pickle instruction");
      if (op == kStop) break;
      if (!number(op) && !text(op) && !container(op) && !memo(op) && !object(op) && !frame(op))
        refuse("instruction 0x{:02x} is not one that tensors need", op);
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw UserError("{}: the pickle at byte {}: {}; the file is damaged or not a plain state dict",
                    reader_.label(), reader_.position(),
                    fmt::format(format, std::forward<Args>(args)...));
  }

  PickleId add(PickleValue value) {
    if (pickle_.values.size() >= kMaxValues) refuse("more than {} values", kMaxValues);
    pickle_.values.push_back(std::move(value));
    return static_cast<PickleId>(pickle_.values.size() - 1);
  }
  void charge(size_t copies) {
    copies_ += copies;
    if (copies_ > kMaxCopies) refuse("more than {} references between values", kMaxCopies);
  }
  bool push_id(PickleId id) {
    charge(1);
    stack_.push_back(id);
    return true;
  }
  bool push(PickleValue value) { return push_id(add(std::move(value))); }
  bool push(Kind kind, int64_t integer = 0, std::string_view text = {}) {
    PickleValue value;
    value.kind = kind;
    value.integer = integer;
    value.text = text;
    return push(std::move(value));
  }
  bool push_container(Kind kind, std::vector<PickleId> items) {
    PickleValue value;
    value.kind = kind;
    value.items = std::move(items);
    return push(std::move(value));
  }

  // Values above the latest mark belong to it and cannot be popped one by one.
  void need(size_t count) const {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < floor + count) refuse("its stack is empty");
  }
  PickleId pop() {
    need(1);
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  PickleValue& top(Kind wanted) {
    need(1);
    PickleValue& value = pickle_.values[stack_.back()];
    if (value.kind != wanted) refuse("items are added to something that takes none");
    return value;
  }
  std::vector<PickleId> pop_to_mark() {
    if (marks_.empty()) refuse("a mark is missing");
    const size_t mark = marks_.back();
    marks_.pop_back();
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(mark);
    std::vector<PickleId> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return items;
  }
  std::vector<PickleId> pop_some(size_t count) {
    need(count);
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<PickleId> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return items;
  }

  bool number(uint8_t op) {
    switch (op) {
      case kBinInt:
        return push(Kind::Integer, reader_.number<int32_t>("an integer"));
      case kBinInt1:
        return push(Kind::Integer, reader_.u8("an integer"));
      case kBinInt2:
        return push(Kind::Integer, reader_.u16("an integer"));
      case kInt:
        return push_decimal(reader_.line("an integer"));
      case kLong:
        return push_decimal(reader_.line("an integer"));
      case kLong1:
        return push_long(reader_.u8("an integer's length"));
      case kLong4:
        return push_long(reader_.u32("an integer's length"));
      case kFloat:
        return reader_.line("a number"), push(Kind::Float);
      case kBinFloat:
        return reader_.take(8, "a number"), push(Kind::Float);
      case kNone:
        return push(Kind::None);
      case kNewTrue:
        return push(Kind::Bool, 1);
      case kNewFalse:
        return push(Kind::Bool, 0);
      default:
        return false;
    }
  }

  bool push_decimal(std::string_view line) {
    if (line == "00" || line == "01") return push(Kind::Bool, line == "01");
    if (!line.empty() && line.back() == 'L') line.remove_suffix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error == std::errc::result_out_of_range) return push(Kind::Bytes, 0, line);
    if (error != std::errc() || end != line.data() + line.size())
      refuse("\"{}\" is not an integer", printable(line, 40));
    return push(Kind::Integer, value);
  }

  // Two's complement, little endian, `count` bytes.
  bool push_long(uint32_t count) {
    const std::string_view bytes = reader_.text(count, "a long integer");
    if (count > 8) return push(Kind::Bytes, 0, bytes);
    const bool negative = count > 0 && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0;
    uint64_t value = negative ? ~uint64_t{0} : 0;
    for (uint32_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return push(Kind::Integer, static_cast<int64_t>(value));
  }

  bool text(uint8_t op) {
    switch (op) {
      case kBinUnicode:
        return push_text(Kind::Text, reader_.u32("a text's length"));
      case kShortBinUnicode:
        return push_text(Kind::Text, reader_.u8("a text's length"));
      case kBinUnicode8:
        return push_text(Kind::Text, reader_.u64("a text's length"));
      // Python 2 wrote names like this.
      case kBinString:
        return push_text(Kind::Text, reader_.u32("a text's length"));
      case kShortBinString:
        return push_text(Kind::Text, reader_.u8("a text's length"));
      case kBinBytes:
        return push_text(Kind::Bytes, reader_.u32("a length"));
      case kShortBinBytes:
        return push_text(Kind::Bytes, reader_.u8("a length"));
      case kBinBytes8:
        return push_text(Kind::Bytes, reader_.u64("a length"));
      default:
        return false;
    }
  }
  bool push_text(Kind kind, uint64_t count) { return push(kind, 0, reader_.text(count, "a text")); }

  bool container(uint8_t op) {
    switch (op) {
      case kMark:
        return charge(1), marks_.push_back(stack_.size()), true;
      case kPop:
        return pop_or_unmark();
      case kPopMark:
        return pop_to_mark(), true;
      case kDup:
        return need(1), push_id(stack_.back());
      case kEmptyTuple:
        return push(Kind::Tuple);
      case kTuple:
        return push_container(Kind::Tuple, pop_to_mark());
      case kTuple1:
        return push_container(Kind::Tuple, pop_some(1));
      case kTuple2:
        return push_container(Kind::Tuple, pop_some(2));
      case kTuple3:
        return push_container(Kind::Tuple, pop_some(3));
      case kEmptyList:
        return push(Kind::List);
      case kList:
        return push_container(Kind::List, pop_to_mark());
      case kAppend:
        return extend(Kind::List, pop_some(1));
      case kAppends:
        return extend(Kind::List, pop_to_mark());
      case kEmptyDict:
        return push(Kind::Dict);
      case kDict:
        return push_container(Kind::Dict, in_pairs(pop_to_mark()));
      case kSetItem:
        return extend(Kind::Dict, pop_some(2));
      case kSetItems:
        return extend(Kind::Dict, in_pairs(pop_to_mark()));
      default:
        return false;
    }
  }

  bool pop_or_unmark() {
    if (!marks_.empty() && marks_.back() == stack_.size())
      marks_.pop_back();
    else
      pop();
    return true;
  }
  std::vector<PickleId> in_pairs(std::vector<PickleId> items) const {
    if (items.size() % 2 != 0) refuse("a dictionary has a key without value");
    return items;
  }
  bool extend(Kind kind, const std::vector<PickleId>& items) {
    PickleValue& value = top(kind);
    value.items.insert(value.items.end(), items.begin(), items.end());
    return true;
  }

  bool memo(uint8_t op) {
    switch (op) {
      case kPut:
        return remember(decimal_index());
      case kBinPut:
        return remember(reader_.u8("a memo index"));
      case kLongBinPut:
        return remember(reader_.u32("a memo index"));
      case kMemoize:
        return remember(memo_.size());
      case kGet:
        return recall(decimal_index());
      case kBinGet:
        return recall(reader_.u8("a memo index"));
      case kLongBinGet:
        return recall(reader_.u32("a memo index"));
      default:
        return false;
    }
  }
  uint64_t decimal_index() {
    const std::string_view line = reader_.line("a memo index");
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error != std::errc() || end != line.data() + line.size()) refuse("a broken memo index");
    return value;
  }
  bool remember(uint64_t index) {
    need(1);
    charge(1);
    memo_[index] = stack_.back();
    return true;
  }
  bool recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("memo {} was never set", index);
    return push_id(found->second);
  }

  bool object(uint8_t op) {
    switch (op) {
      case kGlobal:
        return push_global(read_global());
      case kInst:
        return call_by_name();
      case kStackGlobal:
        return stack_global();
      case kObj:
        return call_above_mark();
      case kReduce:
      case kNewObj:
        return call_top();
      case kBuild:
        return build();
      case kBinPersId:
        return persistent();
      default:
        return false;
    }
  }

  int64_t read_global() {
    const std::string_view module = reader_.line("a module's name");
    return known_global(module, reader_.line("a name"));
  }
  int64_t known_global(std::string_view module, std::string_view name) const {
    if (const auto index = find_pickle_global(module, name)) return *index;
    throw UserError(
        "{}: it asks to load \"{}.{}\", which does not belong in a plain state dict and could run "
        "code; "
        "nothing was run. Save the weights alone (torch.save(model.state_dict(), …)) or as "
        "safetensors",
        reader_.label(), printable(module, 80), printable(name, 80));
  }
  bool push_global(int64_t index) { return push(Kind::Global, index); }
  bool stack_global() {
    const std::vector<PickleId> names = pop_some(2);
    const PickleValue &module = pickle_[names[0]], &name = pickle_[names[1]];
    if (module.kind != Kind::Text || name.kind != Kind::Text) refuse("a name is not a text");
    return push_global(known_global(module.text, name.text));
  }

  bool call_by_name() {
    const int64_t index = read_global();
    return push_id(call(index, pop_to_mark(), 0));
  }
  bool call_above_mark() {
    std::vector<PickleId> items = pop_to_mark();
    if (items.empty()) refuse("a call without a name");
    const int64_t index = global_index(items.front());
    items.erase(items.begin());
    return push_id(call(index, items, 0));
  }
  bool call_top() {
    const std::vector<PickleId> pair = pop_some(2);
    const int64_t index = global_index(pair[0]);
    return push_id(call(index, tuple_items(pair[1]), 0));
  }
  int64_t global_index(PickleId id) const {
    if (pickle_[id].kind != Kind::Global) refuse("something is called that is no known name");
    return pickle_[id].integer;
  }
  std::vector<PickleId> tuple_items(PickleId id) {
    if (pickle_[id].kind != Kind::Tuple) refuse("arguments are not a tuple");
    charge(pickle_[id].items.size());
    return pickle_[id].items;
  }

  PickleId call(int64_t index, const std::vector<PickleId>& arguments, int depth) {
    const PickleGlobal& global = pickle_global(index);
    const auto need_arguments = [&](size_t count) {
      if (arguments.size() < count)
        refuse("{}.{} is given {} arguments", global.module, global.name, arguments.size());
    };
    switch (global.meaning) {
      case Meaning::OrderedDict:
        return ordered_dict(arguments);
      case Meaning::RebuildTensor:
        return need_arguments(4), tensor(arguments);
      case Meaning::RebuildParameter:
        return need_arguments(1), arguments[0];
      case Meaning::RebuildFromType:
        need_arguments(3);
        if (depth >= kMaxNestedCalls) refuse("calls are nested too deep");
        return call(global_index(arguments[0]), tuple_items(arguments[2]), depth + 1);
      case Meaning::Size:
        return need_arguments(1), arguments[0];
      case Meaning::Storage:
        refuse("{}.{} is called", global.module, global.name);
      case Meaning::Opaque:
        break;
    }
    PickleValue opaque;
    opaque.kind = Kind::Opaque;
    return add(std::move(opaque));
  }

  PickleId ordered_dict(const std::vector<PickleId>& arguments) {
    PickleValue dict;
    dict.kind = Kind::Dict;
    if (!arguments.empty()) {
      const PickleValue& pairs = pickle_[arguments[0]];
      if (pairs.kind != Kind::List && pairs.kind != Kind::Tuple) refuse("a dictionary of no pairs");
      charge(2 * pairs.items.size());
      for (const PickleId id : pairs.items) {
        const PickleValue& pair = pickle_[id];
        if (pair.items.size() != 2) refuse("a dictionary of no pairs");
        dict.items.insert(dict.items.end(), pair.items.begin(), pair.items.end());
      }
    }
    return add(std::move(dict));
  }

  PickleId tensor(const std::vector<PickleId>& arguments) {
    const PickleValue& storage = pickle_[arguments[0]];
    const PickleValue& offset = pickle_[arguments[1]];
    if (storage.kind != Kind::Storage || offset.kind != Kind::Integer ||
        pickle_[arguments[2]].kind != Kind::Tuple || pickle_[arguments[3]].kind != Kind::Tuple)
      refuse("a tensor of the wrong parts");
    PickleValue value;
    value.kind = Kind::Tensor;
    value.dtype = storage.dtype;
    value.integer = offset.integer;
    value.items = {arguments[0], arguments[2], arguments[3]};
    return add(std::move(value));
  }

  // Ignores state such as an ordered dictionary's _metadata.
  bool build() {
    pop();
    need(1);
    const Kind kind = pickle_[stack_.back()].kind;
    if (kind != Kind::Dict && kind != Kind::Tensor && kind != Kind::Opaque)
      refuse("state is given to something that has none");
    return true;
  }

  // ("storage", type, key, location, elements[, view]). The key is a text, or a number in what
  // LitGPT's conversion writes.
  bool persistent() {
    const std::vector<PickleId> parts = tuple_items(pop());
    if (parts.size() < 5 || pickle_[parts[0]].text != "storage" ||
        pickle_[parts[1]].kind != Kind::Global ||
        (pickle_[parts[2]].kind != Kind::Text && pickle_[parts[2]].kind != Kind::Integer) ||
        pickle_[parts[4]].kind != Kind::Integer)
      refuse("a reference to something other than a storage");
    const PickleGlobal& type = pickle_global(pickle_[parts[1]].integer);
    if (type.meaning != Meaning::Storage) refuse("a storage of type {}.{}", type.module, type.name);
    if (parts.size() > 5 && pickle_[parts[5]].kind != Kind::None)
      refuse("a storage that is a view of another, as torch before 0.4 wrote them");
    PickleValue value;
    value.kind = Kind::Storage;
    value.dtype = type.dtype;
    if (pickle_[parts[2]].kind == Kind::Text)
      value.text = pickle_[parts[2]].text;
    else
      value.items = {parts[2]};
    value.integer = pickle_[parts[4]].integer;
    if (value.integer < 0) refuse("a storage of {} elements", value.integer);
    return push(std::move(value));
  }

  bool frame(uint8_t op) {
    if (op == kProto) {
      const uint8_t protocol = reader_.u8("the protocol");
      if (protocol > 5) refuse("protocol {} is newer than the known ones", protocol);
      return true;
    }
    if (op == kFrame) reader_.take(8, "a frame's length");
    return op == kFrame;
  }

  ByteReader& reader_;
  Pickle pickle_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleId> memo_;
  size_t copies_ = 0;
};

}  // namespace

Pickle read_pickle(ByteReader& reader) { return Machine(reader).run(); }

}  // namespace snug::files
