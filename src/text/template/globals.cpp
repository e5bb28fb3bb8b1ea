// The functions that every template may call.
// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <utility>

#include "text/template/interpreter.h"

namespace snug::tokenizer::jinja {
namespace {

constexpr int64_t kMaxRange = 1'000'000;

Value make_range(Runtime& runtime, const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};  // start, stop, step
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) runtime.fail("range() takes one to three numbers");
  for (size_t i = 0; i < count; ++i) {
    if (!arguments.positional[i].is_integer()) runtime.fail("range() takes whole numbers");
    bounds[count == 1 ? 1 : i] = arguments.positional[i].integer();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) runtime.fail("range() with a step of 0");
  List out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange) {
      runtime.fail("range() of more than {} numbers", kMaxRange);
    }
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.charge(out.size() * 16);
  return out;
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const Value* message = arguments.get(0, "message");
  runtime.fail("the chat template refuses this conversation: {}",
               message ? to_text(*message, runtime) : "no reason given");
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const Value* format = arguments.get(0, "format");
  if (!format || !format->is_string()) runtime.fail("strftime_now() takes a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[256];
  return std::string(buffer,
                     std::strftime(buffer, sizeof(buffer), format->string().c_str(), &local));
}

Value make_dict(Runtime&, const Arguments& arguments) {
  Dict made;
  for (const auto& [key, value] : arguments.named) made.set(key, value);
  return made;
}

}  // namespace

std::vector<std::pair<std::string, Function>> global_functions() {
  return {{"range", make_range},
          {"raise_exception", raise_exception},
          {"strftime_now", strftime_now},
          {"dict", make_dict}};
}

}  // namespace snug::tokenizer::jinja
