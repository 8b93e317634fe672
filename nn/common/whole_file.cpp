#include "nn/common/whole_file.h"

#include <algorithm>
#include <new>

#include "core/types/errors.h"
#include "nn/common/byte_source.h"

namespace mytorch::nn {

std::string read_whole_file(const std::string& path, uint64_t most) {
  ByteSource source(path);
  std::string bytes;
  try {
    // Grows with what the file delivers: a small gzip file may promise a thousandfold.
    constexpr uint64_t kFirst = uint64_t{1} << 20;
    for (;;) {
      const size_t had = bytes.size();
      bytes.resize(
          static_cast<size_t>(std::min(std::max<uint64_t>(kFirst, had), source.limit()) + had + 1));
      const size_t got = source.read(bytes.data() + had, bytes.size() - had);
      const bool ended = got < bytes.size() - had;
      bytes.resize(had + got);
      if (bytes.size() > most) {
        source.fail_file(absl::StrCat("has more than ", most, " bytes: give a smaller one"));
      }
      if (ended) return bytes;
    }
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kOutOfMemory, "[data] out of memory while reading ", path);
  }
}

}  // namespace mytorch::nn
