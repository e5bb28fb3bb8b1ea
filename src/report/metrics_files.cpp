// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/program.h"

namespace snug::report {
namespace {

std::string header_of(const std::vector<std::string>& figures) {
  std::string header =
      "step,loss,tokens,padded_tokens,tokens_per_second,lr,grad_norm,seconds,peak_allocated,"
      "peak_reserved,val_loss";
  for (const char* const prefix : {"", "val_"})
    for (const std::string& figure : figures) header += fmt::format(",{}{}", prefix, figure);
  return header + "\n";
}

// Shortest text that reads back as the same number; an empty cell for what is no number.
std::string cell(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

std::optional<int64_t> step_of(std::string_view line) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool whole = error == std::errc() && end != line.data() + line.size() && *end == ',';
  return whole ? std::optional(step) : std::nullopt;
}

// A validation's row has neither loss nor tokens; a step's may lack a loss that is no number.
bool is_validation(std::string_view line) { return line.find(",,,") == line.find(','); }

// The header and the whole rows that belong to steps up to `last`.
std::string kept_rows(std::string_view text, const std::string& header, const LoggedUntil& last) {
  std::string kept = header;
  text.remove_prefix(header.size());
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end + 1);
    const auto step = step_of(line);
    if (step && *step <= (is_validation(line) ? last.validation : last.step)) kept += line;
    text.remove_prefix(end + 1);
  }
  return kept;
}

void prepare(const std::filesystem::path& path, const std::string& header,
             const std::optional<LoggedUntil>& resumed, const std::filesystem::path& earlier) {
  std::string content = header;
  if (resumed && std::filesystem::exists(earlier)) {
    const std::string old = read_file(earlier);
    if (old.starts_with(header)) content = kept_rows(old, header, *resumed);
  } else if (resumed && std::filesystem::exists(path)) {
    const std::string old = read_file(path);
    if (old.starts_with(header)) {
      content = kept_rows(old, header, *resumed);
    } else {
      const std::filesystem::path aside = path.string() + ".old";
      std::filesystem::rename(path, aside);
      warn("{} has different columns from those that this version writes; it is kept as {}",
           path.string(), aside.filename().string());
    }
  }
  write_file_atomically(path, content);
}

}  // namespace

MetricsCsv::MetricsCsv(const std::filesystem::path& path, std::optional<LoggedUntil> resumed,
                       const std::filesystem::path& earlier, std::vector<std::string> figures)
    : path_(path), figures_(std::move(figures)) {
  if (path_.has_parent_path()) {
    std::error_code ignored;  // a folder that can't be made shows when the file is written
    std::filesystem::create_directories(path_.parent_path(), ignored);
  }
  prepare(path_, header_of(figures_), resumed, earlier);
  file_.reset(std::fopen(path_.c_str(), "ae"));
  if (!file_) throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
}

void MetricsCsv::write(const MetricsRow& row) {
  write_line(fmt::format("{},{},{},{},{},{},{},{},{},{},{}{}\n", row.step, cell(row.loss),
                         row.tokens, row.padded_tokens, cell(row.tokens_per_second), cell(row.lr),
                         cell(row.grad_norm), cell(row.seconds), row.peak_allocated,
                         row.peak_reserved, cells(row.figures), cells({})));
}

void MetricsCsv::write_validation(int64_t step, double loss, const Figures& figures) {
  write_line(fmt::format("{},,,,,,,,,,{}{}{}\n", step, cell(loss), cells({}), cells(figures)));
}

std::string MetricsCsv::cells(const Figures& figures) const {
  std::string cells;
  for (const std::string& name : figures_) {
    const auto found = figures.find(name);
    cells += "," + (found == figures.end() ? "" : cell(found->second));
  }
  return cells;
}

void MetricsCsv::write_line(std::string_view line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!written || std::fflush(file_.get()) != 0)
    throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
}

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) ? (value >> 1) ^ kReversedPolynomial : value >> 1;
    table[byte] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

// --- protobuf: a field is its number and wire type, then the value ---
enum class Wire { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_key(std::string& out, int field, Wire wire) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void append_bytes(std::string& out, int field, std::string_view value) {
  append_key(out, field, Wire::Bytes);
  append_varint(out, value.size());
  out += value;
}

void append_integer(std::string& out, int field, int64_t value) {
  append_key(out, field, Wire::Varint);
  append_varint(out, static_cast<uint64_t>(value));
}

// Event: 1 wall_time, 2 step, then one of 3 file_version, 5 summary, 7 session_log.
std::string event(double wall_time, int64_t step, int field, std::string_view body) {
  std::string out;
  append_key(out, 1, Wire::Fixed64);
  append_little_endian(out, std::bit_cast<uint64_t>(wall_time), 8);
  if (step != 0) append_integer(out, 2, step);
  append_bytes(out, field, body);
  return out;
}

// Summary.value (1) = { 1 tag, 2 simple_value }
std::string scalar_summary(std::string_view tag, float value) {
  std::string point;
  append_bytes(point, 1, tag);
  append_key(point, 2, Wire::Fixed32);
  append_little_endian(point, std::bit_cast<uint32_t>(value), 4);
  std::string summary;
  append_bytes(summary, 1, point);
  return summary;
}

// SessionLog.status (1) = START (1): TensorBoard then drops points at this event's step and later.
std::string session_start() {
  std::string log;
  append_integer(log, 1, 1);
  return log;
}

// TensorBoard orders the files of a folder by name, so the time comes first; O_EXCL and the counter
// keep two writers of one second apart.
std::pair<std::filesystem::path, std::FILE*> create_events_file(const std::filesystem::path& dir,
                                                                double now) {
  const std::string host = host_name();
  for (int number = 0;; ++number) {
    const auto path = dir / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                                        static_cast<int64_t>(now), host, ::getpid(), number);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return {path, ::fdopen(fd, "wb")};
    if (errno != EEXIST)
      throw UserError("cannot write TensorBoard events to {}: {}", dir.string(),
                      std::strerror(errno));
  }
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& dir, TensorBoardOptions options)
    : clock_(options.clock ? std::move(options.clock) : unix_seconds) {
  std::error_code ignored;  // shows when the file is opened
  std::filesystem::create_directories(dir, ignored);
  const double now = clock_();
  auto [path, file] = create_events_file(dir, now);
  path_ = std::move(path);
  file_.reset(file);
  write_record(event(now, 0, 3, "brain.Event:2"));
  if (options.resumed_step) write_record(event(now, *options.resumed_step + 1, 7, session_start()));
}

void TensorBoardWriter::scalar(std::string_view tag, double value, int64_t step) {
  write_record(event(clock_(), step, 5, scalar_summary(tag, static_cast<float>(value))));
}

void TensorBoardWriter::write_record(std::string_view payload) {
  std::string record;
  append_little_endian(record, payload.size(), 8);
  append_little_endian(record, masked_crc(record), 4);
  record += payload;
  append_little_endian(record, masked_crc(payload), 4);
  const bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  if (!written || std::fflush(file_.get()) != 0)
    throw UserError("cannot write {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace snug::report
