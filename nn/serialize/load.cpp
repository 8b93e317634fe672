#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <istream>
#include <iterator>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/serialize.h"
#include "nn/common/host_tensor.h"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn {

struct SafetensorsFile::State {
  explicit State(const std::string& path);
  explicit State(std::istream& stream);
  ~State() { close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const Entry* find(const std::string& name) const;
  Tensor load(const Entry& entry, Device device) const;

  std::string path;
  int fd = -1;        // -1: the bytes are in memory
  std::string bytes;  // of a stream
  uint64_t data_begin = 0;
  SafetensorsHeader header;

 private:
  [[noreturn]] void fail_file(const std::string& reason) const;
  void close();
  uint64_t size() const;
  void read_header();
  void read_at(void* to, uint64_t bytes, uint64_t offset) const;
};

void SafetensorsFile::State::fail_file(const std::string& reason) const {
  fail(ErrorCode::kIo, "[load_safetensors] file ", path, ": ", reason);
}

void SafetensorsFile::State::close() {
  if (fd >= 0) ::close(fd);
}

SafetensorsFile::State::State(const std::string& path) : path(path) {
  // Nonblocking, so that a pipe without a writer fails instead of hanging.
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_file(absl::StrCat("cannot be opened: ", std::strerror(errno)));
  try {
    read_header();
  } catch (...) {
    close();
    throw;
  }
}

SafetensorsFile::State::State(std::istream& stream) : path("(stream)") {
  bytes.assign(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) fail_file("cannot be read");
  read_header();
}

uint64_t SafetensorsFile::State::size() const {
  if (fd < 0) return bytes.size();
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) fail_file("is not a regular file");
  return static_cast<uint64_t>(info.st_size);
}

void SafetensorsFile::State::read_header() {
  const uint64_t size = this->size();
  if (size < kPrefixBytes) {
    fail_file(absl::StrCat("has ", size,
                           " bytes, fewer than the format's first field: it is "
                           "truncated or has another format"));
  }
  uint64_t length = 0;
  read_at(&length, sizeof(length), 0);
  if (length > kMaxHeaderBytes) {
    fail_file(absl::StrCat("says that its header has ", length, " bytes, but the format allows ",
                           kMaxHeaderBytes, ": the file is damaged or has another format"));
  }
  if (length > size - kPrefixBytes) {
    fail_file(absl::StrCat("says that its header has ", length, " bytes, but only ",
                           size - kPrefixBytes, " follow: it is truncated or has another format"));
  }
  std::string json(length, '\0');
  read_at(json.data(), length, kPrefixBytes);
  data_begin = kPrefixBytes + length;
  header = parse_header(json, size - data_begin, path);
}

void SafetensorsFile::State::read_at(void* to, uint64_t bytes, uint64_t offset) const {
  if (fd < 0) {  // the header was checked against the size
    std::memcpy(to, this->bytes.data() + offset, bytes);
    return;
  }
  constexpr uint64_t kPiece = uint64_t{1} << 30;  // Linux reads at most 2 GiB per call
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, next, std::min(bytes, kPiece), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) fail_file("became shorter while it was read");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

const SafetensorsFile::Entry* SafetensorsFile::State::find(const std::string& name) const {
  const auto found = std::lower_bound(
      header.entries.begin(), header.entries.end(), name,
      [](const Entry& entry, const std::string& name) { return entry.name < name; });
  return found != header.entries.end() && found->name == name ? &*found : nullptr;
}

Tensor SafetensorsFile::State::load(const Entry& entry, Device device) const {
  Tensor tensor = fresh_host_tensor(entry.shape, entry.dtype);
  const auto bytes = static_cast<uint64_t>(entry.end - entry.begin);
  read_at(fresh_data(tensor), bytes, data_begin + static_cast<uint64_t>(entry.begin));
  if (entry.dtype == kBool) {
    // Kernels rely on this; any other value is undefined behavior in C++.
    const uint8_t* values = fresh_data<uint8_t>(tensor);
    const uint8_t* odd =
        std::find_if(values, values + bytes, [](uint8_t value) { return value > 1; });
    if (odd != values + bytes) {
      fail(ErrorCode::kIo, "[load_safetensors] file ", path, ", tensor '", shown(entry.name),
           "': element ", odd - values, " of a BOOL tensor is ", *odd, ", not 0 or 1");
    }
  }
  if (device.is_cpu()) return tensor;
  NoGradGuard no_grad;
  return tensor.to(device);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : state_(new State(path)) {}
SafetensorsFile::SafetensorsFile(std::istream& stream) : state_(new State(stream)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::vector<SafetensorsFile::Entry>& SafetensorsFile::entries() const {
  return state_->header.entries;
}

const Metadata& SafetensorsFile::metadata() const { return state_->header.metadata; }

bool SafetensorsFile::contains(const std::string& name) const {
  return state_->find(name) != nullptr;
}

Tensor SafetensorsFile::load(const std::string& name, Device device) const {
  const Entry* entry = state_->find(name);
  if (entry == nullptr) {
    fail(ErrorCode::kValue, "[load_safetensors] file ", state_->path, " has no tensor '",
         shown(name), "': entries() lists what it has");
  }
  return state_->load(*entry, device);
}

namespace {

TensorMap load_all(const SafetensorsFile& file, Device device) {
  TensorMap tensors;
  for (const auto& entry : file.entries()) {
    tensors.emplace_hint(tensors.end(), entry.name, file.load(entry.name, device));
  }
  return tensors;
}

}  // namespace

TensorMap load_safetensors(const std::string& path, Device device) {
  return load_all(SafetensorsFile(path), device);
}

TensorMap load_safetensors(std::istream& stream, Device device) {
  return load_all(SafetensorsFile(stream), device);
}

}  // namespace mytorch::nn
