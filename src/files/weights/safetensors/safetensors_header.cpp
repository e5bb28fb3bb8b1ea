// SPDX-License-Identifier: Apache-2.0
#include "files/weights/safetensors/safetensors_header.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "files/weights/byte_reader.h"

namespace snug::files {
namespace {

using Json = nlohmann::json;

class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& label) : label_(label) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override { refuse("number " + text); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool number_integer(number_integer_t value) override {
    refuse(fmt::format("negative number {}", value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (numbers_ == nullptr || !in_array_) refuse(fmt::format("number {}", value));
    if (value > INT64_MAX) refuse(fmt::format("number {}, which 63 bits cannot hold,", value));
    numbers_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::Metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (place_ == Place::Tensor && key_ == "dtype" && !entry().dtype) {
      entry().dtype = std::move(value);
    } else {
      refuse(fmt::format("text \"{}\"", printable(value)));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::Outside) {
      place_ = Place::Top;
    } else if (place_ == Place::Top && key_ == "__metadata__") {
      place_ = Place::Metadata;
    } else if (place_ == Place::Top) {
      header_.entries.push_back({key_, {}, {}, {}});
      place_ = Place::Tensor;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    place_ = place_ == Place::Top ? Place::Outside : Place::Top;
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_array(std::size_t) override {
    numbers_ = nullptr;
    if (place_ == Place::Tensor && !in_array_) {
      if (key_ == "shape" && !entry().shape) numbers_ = &entry().shape.emplace();
      if (key_ == "data_offsets" && !entry().offsets) numbers_ = &entry().offsets.emplace();
    }
    if (numbers_ == nullptr) refuse("an array");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw UserError(
        "{}: the header is not valid JSON at byte {} ({}); the file is damaged, fetch it "
        "again",
        label_, position + 8, printable(error.what(), 300));
  }

 private:
  enum class Place { Outside, Top, Metadata, Tensor };

  SafetensorsEntry& entry() { return header_.entries.back(); }

  [[noreturn]] void refuse(const std::string& what) const {
    const std::string tensor =
        place_ == Place::Tensor
            ? fmt::format(" of tensor \"{}\"", printable(header_.entries.back().name))
            : "";
    throw UserError(
        "{}: the header has {} at \"{}\"{}, where the format does not allow it; the file is "
        "damaged, fetch it again",
        label_, what, printable(key_), tensor);
  }

  const std::string& label_;
  SafetensorsHeader header_;
  Place place_ = Place::Outside;
  std::string key_;
  std::vector<int64_t>* numbers_ = nullptr;
  bool in_array_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& label) {
  HeaderHandler handler(label);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

}  // namespace snug::files
