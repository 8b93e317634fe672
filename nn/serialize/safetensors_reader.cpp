#include "nn/serialize/safetensors_reader.h"

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
#include "nn/common/host_tensor.h"

namespace mytorch::nn {

void SafetensorsReader::fail_file(const std::string& reason) const {
  fail(ErrorCode::kIo, "[load_safetensors] file ", path_, ": ", reason);
}

void SafetensorsReader::close() {
  if (fd_ >= 0) ::close(fd_);
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path) {
  // Nonblocking, so that a pipe without a writer fails instead of hanging.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail_file(absl::StrCat("cannot be opened: ", std::strerror(errno)));
  try {
    read_header();
  } catch (...) {
    close();
    throw;
  }
}

SafetensorsReader::SafetensorsReader(std::istream& stream) : path_("(stream)") {
  bytes_.assign(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) fail_file("cannot be read");
  read_header();
}

uint64_t SafetensorsReader::size() const {
  if (fd_ < 0) return bytes_.size();
  struct stat info;
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) fail_file("is not a regular file");
  return static_cast<uint64_t>(info.st_size);
}

void SafetensorsReader::read_header() {
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
  data_begin_ = kPrefixBytes + length;
  header_ = parse_header(json, size - data_begin_, path_);
}

void SafetensorsReader::read_at(void* to, uint64_t bytes, uint64_t offset) const {
  if (fd_ < 0) {  // the header was checked against the size
    std::memcpy(to, bytes_.data() + offset, bytes);
    return;
  }
  constexpr uint64_t kPiece = uint64_t{1} << 30;  // Linux reads at most 2 GiB per call
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, next, std::min(bytes, kPiece), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file(absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (got == 0) fail_file("became shorter while it was read");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

const SafetensorsFile::Entry* SafetensorsReader::find(const std::string& name) const {
  const auto found = std::lower_bound(
      header_.entries.begin(), header_.entries.end(), name,
      [](const Entry& entry, const std::string& name) { return entry.name < name; });
  return found != header_.entries.end() && found->name == name ? &*found : nullptr;
}

void SafetensorsReader::read(const Entry& entry, int64_t first, int64_t count, void* to) const {
  const int64_t width = element_size(entry.dtype);
  const auto bytes = static_cast<uint64_t>(count * width);
  read_at(to, bytes, data_begin_ + static_cast<uint64_t>(entry.begin + first * width));
  if (entry.dtype != kBool) return;
  // Kernels rely on this; any other value is undefined behavior in C++.
  const auto* values = static_cast<const uint8_t*>(to);
  const uint8_t* odd =
      std::find_if(values, values + bytes, [](uint8_t value) { return value > 1; });
  if (odd == values + bytes) return;
  fail(ErrorCode::kIo, "[load_safetensors] file ", path_, ", tensor '", shown(entry.name),
       "': element ", first + (odd - values), " of a BOOL tensor is ", *odd, ", not 0 or 1");
}

Tensor SafetensorsReader::load(const Entry& entry, Device device) const {
  Tensor tensor = fresh_host_tensor(entry.shape, entry.dtype);
  read(entry, 0, tensor.numel(), fresh_data(tensor));
  if (device.is_cpu()) return tensor;
  NoGradGuard no_grad;
  return tensor.to(device);
}

}  // namespace mytorch::nn
