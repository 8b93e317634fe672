// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <string>

namespace mytorch::nn {

// Writes go to a temporary file in the target's directory. commit() puts it in the target's place;
// without it the temporary is removed and the target stays as it was. Failures are Error(kIo), with
// `what` (a function's name) in front.
class AtomicFile {
 public:
  // Follows a symbolic link; keeps the permissions of a file that is replaced.
  AtomicFile(const char* what, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  // On return the file is on the disk under its name. Call once, last.
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* doing) const;
  void resolve_target();
  void open_temporary();

  const char* what_;
  std::string path_;
  std::string temporary_;  // empty when there is none
  int fd_ = -1;
};

}  // namespace mytorch::nn
