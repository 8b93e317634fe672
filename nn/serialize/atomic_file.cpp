#include "nn/serialize/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/types/errors.h"

namespace mytorch::nn {
std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void sync_directory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

AtomicFile::AtomicFile(const char* what, const std::string& path) : what_(what), path_(path) {
  resolve_target();
  open_temporary();
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_errno(const char* doing) const {
  const int error = errno;
  fail(ErrorCode::kIo, "[", what_, "] file ", path_, ": ", doing, ": ", std::strerror(error),
       "; the previous contents are unchanged");
}

void AtomicFile::resolve_target() {
  struct stat info;
  if (::lstat(path_.c_str(), &info) != 0) return;  // new file, or open_temporary reports the error
  if (S_ISLNK(info.st_mode)) {
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path_.c_str(), nullptr),
                                                      std::free);
    if (real == nullptr) fail_errno("cannot follow the symbolic link");
    path_ = real.get();
    if (::stat(path_.c_str(), &info) != 0) fail_errno("cannot be examined");
  }
  // Renaming over a device or a pipe would replace it.
  if (!S_ISREG(info.st_mode)) {
    fail(ErrorCode::kIo, "[", what_, "] file ", path_,
         ": is a directory or device, not a file: give another name");
  }
}

void AtomicFile::open_temporary() {
  // Use a short name, since the target's may already have the maximum length. Unlike mkstemp, mode
  // 0666 respects the process's umask.
  static std::atomic<unsigned> count{0};
  const std::string directory = directory_of(path_);
  do {
    temporary_ = absl::StrCat(directory, "/.mytorch-", ::getpid(), "-", count.fetch_add(1), ".tmp");
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) {
    temporary_.clear();
    fail_errno("cannot make a file in its directory");
  }
  struct stat info;
  if (::stat(path_.c_str(), &info) == 0) ::fchmod(fd_, info.st_mode & 07777);
}

void AtomicFile::write(const void* data, size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 30;  // Linux writes at most 2 GiB per call
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(fd_, next, std::min(bytes, kPiece));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_errno("cannot be written");
    next += done;
    bytes -= static_cast<size_t>(done);
  }
}

void AtomicFile::commit() {
  // Without this, a crash after the rename could leave an empty file under the target's name.
  if (::fsync(fd_) != 0) fail_errno("cannot be synchronized to the disk");
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno("cannot be closed");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("cannot be put in its place");
  temporary_.clear();
  sync_directory(directory_of(path_));  // the file is valid without it
}

}  // namespace mytorch::nn
