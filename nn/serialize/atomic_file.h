// A file that is replaced atomically.
#pragma once

#include <cstddef>
#include <string>

namespace mytorch::nn {

// Writes to a temporary file in the target's directory. commit() renames it to the target; without
// commit(), the temporary file is removed and the target is unchanged. Failures throw Error(kIo)
// prefixed with `what`, a function's name.
class AtomicFile {
 public:
  // Follows a symbolic link, and keeps the permissions of an existing file.
  AtomicFile(const char* what, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  // On return, the file is on disk under its name. Call once, last.
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* doing) const;
  void resolve_target();
  void open_temporary();

  const char* what_;
  std::string path_;
  std::string temporary_;  // empty if there is none
  int fd_ = -1;
};

// Makes the names in a directory durable. Not every file system supports this, and then they are
// when it sees fit.
void sync_directory(const std::string& path);
// Returns the directory that a path is in.
std::string directory_of(const std::string& path);

}  // namespace mytorch::nn
