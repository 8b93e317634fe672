#include "nn/common/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/types/errors.h"

namespace mytorch::nn {
namespace {

constexpr size_t kChunk = size_t{1} << 18;
// Deflate's shortest code expands 2 bits to 258 bytes.
constexpr uint64_t kMaxExpansion = 258 * 4;

}  // namespace

ByteSource::ByteSource(const std::string& path) : path_(path), chunk_(kChunk) {
  // Nonblocking, so that a pipe without a writer fails instead of hanging.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail_file(absl::StrCat("cannot be opened: ", std::strerror(errno)));
  try {
    struct stat info;
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
      fail_file("is not a regular file: give one");
    }
    limit_ = static_cast<uint64_t>(info.st_size);
    refill();
    gzip_ = chunk_end_ >= 2 && chunk_[0] == 0x1f && chunk_[1] == 0x8b;
    if (gzip_) {
      limit_ *= kMaxExpansion;
      constexpr int kGzipOnly = 16;
      if (inflateInit2(&inflater_, MAX_WBITS + kGzipOnly) != Z_OK) {
        fail(ErrorCode::kOutOfMemory, "[data] out of memory while decompressing ", path_);
      }
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

ByteSource::~ByteSource() {
  if (gzip_) inflateEnd(&inflater_);
  ::close(fd_);
}

void ByteSource::fail_file(const std::string& reason) const {
  fail(ErrorCode::kIo, "[data] file ", path_, " ", reason);
}

void ByteSource::refill() {
  if (chunk_begin_ != chunk_end_ || file_ended_) return;
  ssize_t got;
  do {
    got = ::read(fd_, chunk_.data(), chunk_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail_file(absl::StrCat("cannot be read: ", std::strerror(errno)));
  chunk_begin_ = 0;
  chunk_end_ = static_cast<size_t>(got);
  file_ended_ = got == 0;
}

size_t ByteSource::read(void* to, size_t bytes) {
  auto* next = static_cast<uint8_t*>(to);
  if (gzip_) return read_gzip(next, bytes);
  size_t done = 0;
  while (done < bytes) {
    refill();
    const size_t n = std::min(bytes - done, chunk_end_ - chunk_begin_);
    if (n == 0) break;
    std::memcpy(next + done, chunk_.data() + chunk_begin_, n);
    chunk_begin_ += n;
    done += n;
  }
  return done;
}

size_t ByteSource::read_gzip(uint8_t* to, size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits
  size_t done = 0;
  while (done < bytes) {
    refill();
    const bool no_input = chunk_begin_ == chunk_end_;
    if (no_input && member_ended_) break;
    if (no_input) {
      fail_file("is cut short in its compressed data: download it again");
    }
    if (member_ended_) {
      inflateReset(&inflater_);
      member_ended_ = false;
    }
    const size_t piece = std::min(bytes - done, kPiece);
    inflater_.next_out = to + done;
    inflater_.avail_out = static_cast<uInt>(piece);
    inflate_some();
    done += piece - inflater_.avail_out;
  }
  return done;
}

void ByteSource::inflate_some() {
  inflater_.next_in = chunk_.data() + chunk_begin_;
  inflater_.avail_in = static_cast<uInt>(chunk_end_ - chunk_begin_);
  const int status = inflate(&inflater_, Z_NO_FLUSH);
  chunk_begin_ = chunk_end_ - inflater_.avail_in;
  if (status == Z_STREAM_END) {
    member_ended_ = true;
    ++members_;
  } else if (status == Z_MEM_ERROR) {
    fail(ErrorCode::kOutOfMemory, "[data] out of memory while decompressing ", path_);
  } else if (status != Z_OK && status != Z_BUF_ERROR) {
    const char* detail = inflater_.msg != nullptr ? inflater_.msg : "needs a dictionary";
    fail_file(members_ > 0
                  ? absl::StrCat("has more bytes after its compressed data, which are not "
                                 "gzip (",
                                 detail, "): download it again")
                  : absl::StrCat("has damaged compressed data (", detail, "): download it again"));
  }
}

}  // namespace mytorch::nn
