#include "mytorch/nn/training/logs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>

#include "core/types/errors.h"
#include "nlohmann/json.hpp"
#include "nn/common/whole_file.h"
#include "nn/serialize/atomic_file.h"

namespace mytorch::nn {

// A file to which whole entries are appended.
class MetricLog::File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_errno("cannot be opened");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void append(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(fd_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail_errno("cannot be written");
      text.remove_prefix(static_cast<size_t>(done));
    }
  }

 private:
  [[noreturn]] void fail_errno(const char* what) const {
    fail(ErrorCode::kIo, "[MetricLog] file ", path_, " ", what, ": ", std::strerror(errno));
  }

  std::string path_;
  int fd_ = -1;
};

namespace {

std::string with_directory(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) {
    fail(ErrorCode::kIo, "[MetricLog] directory ", parent.string(),
         " cannot be made: ", error.message());
  }
  return path;
}

// The shortest text that reads back as the same number.
std::string exact(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// Quotes a CSV field if it needs it.
std::string field(const std::string& name) {
  if (name.find_first_of(",\"\r\n") != std::string::npos || name.empty()) {
    fail(ErrorCode::kValue, "[CsvLog] a metric cannot be named '", name,
         "': give a name without commas, quotes and line ends");
  }
  return name;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0;;) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    if (end == text.size()) return parts;
    at = end + 1;
  }
}

bool parse_double(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// Rewrites a CSV log with the lines before `first_step` only; returns its header.
std::string cut_csv(const std::string& path, int64_t first_step) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return "";
  std::string kept, header;
  if (first_step > 0) {
    const std::string text = read_whole_file(path);
    const auto lines = split(text, '\n');
    for (size_t i = 0; i + 1 < lines.size(); ++i) {  // an incomplete last line is dropped
      double step = 0;
      if (i == 0) {
        header = lines[i];
      } else if (!parse_double(lines[i].substr(0, lines[i].find(',')), &step) ||
                 step >= static_cast<double>(first_step)) {
        continue;
      }
      absl::StrAppend(&kept, piece(lines[i]), "\n");
    }
    if (header.compare(0, 5, "step,") != 0) {
      if (!header.empty()) {
        fail(ErrorCode::kIo, "[CsvLog] file ", path,
             " is no log, since it does not begin with 'step,': give another name");
      }
      kept.clear();
    }
  }
  AtomicFile file("CsvLog", path);
  file.write(kept.data(), kept.size());
  file.commit();
  return header;
}

// ---- TensorBoard's format: framed records of protocol buffers ----

// CRC-32C (Castagnoli), bit-reflected polynomial 0x82f63b78.
constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}

uint32_t masked_crc(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string record(const std::string& data) {
  const std::string length = little_endian(uint64_t{data.size()});
  return length + little_endian(masked_crc(length)) + data + little_endian(masked_crc(data));
}

enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string tag(uint64_t number, Wire wire) { return varint(number << 3 | wire); }

std::string bytes_field(uint64_t number, const std::string& bytes) {
  return tag(number, kBytes) + varint(bytes.size()) + bytes;
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary =
// 5; }
std::string event(int64_t step, const std::string& payload) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return tag(1, kFixed64) + little_endian(now.count()) + tag(2, kVarint) +
         varint(static_cast<uint64_t>(step)) + payload;
}

// A name that no other log has, in the order of time.
std::string event_path(const std::string& directory) {
  static std::atomic<int> count{0};
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return absl::StrCat(directory, "/events.out.tfevents.", seconds, ".", host, ".", ::getpid(), ".",
                      count.fetch_add(1));
}

}  // namespace

MetricLog::MetricLog(Owned<File> file) : file_(std::move(file)) {}
MetricLog::~MetricLog() = default;

CsvLog::CsvLog(const std::string& path, int64_t first_step) : MetricLog(Owned<File>()) {
  header_ = cut_csv(with_directory(path), first_step);
  file_ = Owned<File>(new File(path));
}

void CsvLog::log(int64_t step, const Metrics& metrics) {
  std::string header = "step", line = absl::StrCat(step);
  std::set<std::string> names{"step"};
  for (const auto& [name, value] : metrics) {
    if (!names.insert(name).second) {
      fail(ErrorCode::kValue, "[CsvLog] two columns would be named '", name,
           "': give each metric its own name");
    }
    absl::StrAppend(&header, ",", field(name));
    absl::StrAppend(&line, ",", exact(value));
  }
  if (!header_.empty() && header != header_) {
    fail(ErrorCode::kValue, "[CsvLog] the metrics of step ", step, " are ", header,
         ", but the file's columns are ", header_, ": log the same in each step");
  }
  file_->append(header_.empty() ? absl::StrCat(header, "\n", line, "\n") : line + "\n");
  header_ = header;
}

std::map<std::string, std::vector<double>> read_csv_log(const std::string& path) {
  const std::string text = read_whole_file(path);
  const auto lines = split(text, '\n');
  const auto names = split(lines[0], ',');
  if (names[0] != "step") {
    fail(ErrorCode::kIo, "[read_csv_log] file ", path,
         " does not begin with 'step': give one that "
         "CsvLog wrote");
  }
  std::map<std::string, std::vector<double>> columns;
  for (const auto& name : names) {
    if (!columns.try_emplace(std::string(name)).second) {
      fail(ErrorCode::kIo, "[read_csv_log] file ", path, " has two columns named '", piece(name),
           "': rename one of them");
    }
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const auto fields = split(lines[i], ',');
    for (size_t k = 0; k < names.size(); ++k) {
      double value = 0;
      if (fields.size() != names.size() || !parse_double(fields[k], &value)) {
        fail(ErrorCode::kIo, "[read_csv_log] file ", path, " has no ", names.size(),
             " numbers in line ", i + 1, ": mend or remove the line");
      }
      columns[std::string(names[k])].push_back(value);
    }
  }
  return columns;
}

JsonLinesLog::JsonLinesLog(const std::string& path)
    : MetricLog(Owned<File>(new File(with_directory(path)))) {}

void JsonLinesLog::log(int64_t step, const Metrics& metrics) {
  std::string line = absl::StrCat("{\"step\":", step);
  for (const auto& [name, value] : metrics) {
    // Invalid UTF-8 is replaced.
    const std::string key =
        nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    absl::StrAppend(&line, ",", key, ":", std::isfinite(value) ? exact(value) : "null");
  }
  file_->append(line + "}\n");
}

TensorBoardLog::TensorBoardLog(const std::string& directory)
    : MetricLog(Owned<File>(new File(with_directory(event_path(directory))))) {
  file_->append(record(event(0, bytes_field(3, "brain.Event:2"))));
}

void TensorBoardLog::log(int64_t step, const Metrics& metrics) {
  // message Summary { repeated Value value = 1; }
  // message Value { string tag = 1; float simple_value = 2; }
  std::string summary;
  for (const auto& [name, value] : metrics) {
    summary += bytes_field(
        1, bytes_field(1, name) + tag(2, kFixed32) + little_endian(static_cast<float>(value)));
  }
  file_->append(record(event(step, bytes_field(5, summary))));
}

}  // namespace mytorch::nn
