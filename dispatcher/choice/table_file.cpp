#include "dispatcher/choice/table_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/types/errors.h"
#include "core/types/fnv.h"
#include "mytorch/version.h"

namespace mytorch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTitle = "mytorch choice table 1";

uint32_t checksum(const std::string& text) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

// Fields are separated by tabs; no field contains one.
std::string to_line(const Measurement& m) {
  std::string line = absl::StrCat(m.op, "\t", m.device, "\t",
                                  absl::Hex(m.signature, absl::kZeroPad16), "\t", m.call);
  for (const Timing& t : m.timings) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.9g", t.seconds);
    absl::StrAppend(&line, "\t", t.kernel, "=", seconds);
  }
  return line;
}

bool from_line(const std::string& line, Measurement* m) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  if (fields.size() < 5) return false;
  m->op = fields[0];
  m->device = fields[1];
  if (fields[2].size() != 16 || !absl::SimpleHexAtoi(fields[2], &m->signature)) return false;
  m->call = fields[3];
  for (size_t i = 4; i < fields.size(); ++i) {
    const size_t at = fields[i].rfind('=');
    Timing t;
    if (at == std::string::npos || !absl::SimpleAtod(fields[i].substr(at + 1), &t.seconds) ||
        !(t.seconds > 0)) {
      return false;
    }
    t.kernel = fields[i].substr(0, at);
    m->timings.push_back(std::move(t));
  }
  return true;
}

// Admits one writer at a time, across processes.
class FileLock {
 public:
  explicit FileLock(const std::string& path) {
    fd_ = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    int locked;
    do {
      locked = fd_ < 0 ? -1 : ::flock(fd_, LOCK_EX);
    } while (locked < 0 && errno == EINTR);
    if (locked == 0) return;
    const std::string reason = std::strerror(errno);
    if (fd_ >= 0) ::close(fd_);
    fail(ErrorCode::kIo, "[choice] cannot lock ", path, ": ", reason);
  }
  ~FileLock() { ::close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

void write_all(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
  bool written = fd >= 0;
  for (size_t done = 0; written && done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    written = n > 0;
    if (written) done += static_cast<size_t>(n);
  }
  written = written && ::fsync(fd) == 0;
  const std::string reason = std::strerror(errno);
  if (fd >= 0) ::close(fd);
  if (written) return;
  ::unlink(path.c_str());
  fail(ErrorCode::kIo, "[choice] cannot write ", path, ": ", reason);
}

}  // namespace

std::string machine_fingerprint() {
  std::string model = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    model = std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
    break;
  }
  std::replace(model.begin(), model.end(), '\t', ' ');
  return absl::StrCat(model, ", ", std::thread::hardware_concurrency(), " processors, mytorch ",
                      MYTORCH_VERSION_STRING);
}

std::string table_path(const std::string& fingerprint) {
  const char* own = std::getenv("MYTORCH_CACHE");
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (own != nullptr && *own != '\0') {
    folder = own;
  } else if (xdg != nullptr && *xdg != '\0') {
    folder = fs::path(xdg) / "mytorch";
  } else {
    folder = fs::path(home != nullptr && *home != '\0' ? home : "/tmp") / ".cache" / "mytorch";
  }
  return folder / absl::StrCat("choice-", absl::Hex(fnv1a(fingerprint), absl::kZeroPad16), ".txt");
}

TableFile read_table(const std::string& path, const std::string& fingerprint) {
  TableFile result;
  std::ifstream file(path, std::ios::binary);
  if (!file) return result;
  std::string line;
  if (!std::getline(file, line) || line != kTitle) {
    result.problem = "the file does not begin like a choice table";
    return result;
  }
  if (!std::getline(file, line) || line != fingerprint) {
    result.problem =
        absl::StrCat("the table was measured on another machine (", line.substr(0, 200), ")");
    return result;
  }
  int damaged = 0;
  while (std::getline(file, line)) {
    Measurement m;
    uint32_t sum;
    const bool good = line.size() > 9 && line[8] == ' ' &&
                      absl::SimpleHexAtoi(line.substr(0, 8), &sum) &&
                      checksum(line.substr(9)) == sum && from_line(line.substr(9), &m);
    if (good) {
      result.measurements.push_back(std::move(m));
    } else {
      ++damaged;
    }
  }
  if (damaged > 0) result.problem = absl::StrCat(damaged, " damaged lines were ignored");
  return result;
}

void merge_table(const std::string& path, const std::string& fingerprint,
                 const std::vector<Measurement>& measurements) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) {
    fail(ErrorCode::kIo, "[choice] cannot create ", fs::path(path).parent_path().string(), ": ",
         error.message());
  }
  const FileLock lock(path + ".lock");
  std::map<std::tuple<std::string, std::string, uint64_t>, std::string> lines;
  const auto add = [&](const Measurement& m) { lines[{m.op, m.device, m.signature}] = to_line(m); };
  for (const Measurement& m : read_table(path, fingerprint).measurements) add(m);
  for (const Measurement& m : measurements) add(m);
  std::string text = absl::StrCat(kTitle, "\n", fingerprint, "\n");
  for (const auto& [key, line] : lines) {
    absl::StrAppend(&text, absl::Hex(checksum(line), absl::kZeroPad8), " ", line, "\n");
  }
  const std::string fresh = absl::StrCat(path, ".", ::getpid(), ".new");
  write_all(fresh, text);
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    ::unlink(fresh.c_str());
    fail(ErrorCode::kIo, "[choice] cannot replace ", path, ": ", reason);
  }
}

void remove_table(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail(ErrorCode::kIo, "[choice] cannot remove ", path, ": ", std::strerror(errno));
  }
}

uint64_t table_hash(const std::vector<Measurement>& measurements) {
  uint64_t hash = 0;
  for (const Measurement& m : measurements) {
    // The hash covers the chosen kernel, not the times.
    std::string text = absl::StrCat(m.op, "\t", m.device, "\t", m.signature);
    if (!m.timings.empty()) absl::StrAppend(&text, "\t", m.timings.front().kernel);
    hash += fnv1a(text);
  }
  return hash;
}

}  // namespace mytorch
