#include "mnist_files.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 32;  // a corrupt header must not ask for all memory
constexpr uint8_t kUnsignedByte = 8;

struct CloseGz {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzFile = std::unique_ptr<gzFile_s, CloseGz>;

// Reads up to `size` bytes; fewer only at the end of the file.
size_t read_some(gzFile file, uint8_t* to, size_t size, const std::string& path) {
  size_t done = 0;
  while (done < size) {
    const auto want = static_cast<unsigned>(std::min<size_t>(size - done, 1 << 24));
    const int got = gzread(file, to + done, want);
    if (got < 0) throw std::runtime_error(path + ": damaged gzip data");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace

IdxArray read_idx(const std::string& directory, const std::string& name) {
  std::string path = directory + "/" + name + ".gz";
  if (!std::filesystem::exists(path)) path = directory + "/" + name;
  GzFile file(gzopen(path.c_str(), "rb"));  // also reads uncompressed files
  if (!file) throw std::runtime_error(path + ": cannot open");

  const auto read_exactly = [&](uint8_t* to, size_t size) {
    if (read_some(file.get(), to, size, path) != size)
      throw std::runtime_error(path + ": truncated");
  };
  uint8_t magic[4];
  read_exactly(magic, sizeof magic);
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] == 0) {
    throw std::runtime_error(path + ": not an IDX array of unsigned bytes");
  }
  IdxArray array;
  int64_t bytes = 1;
  for (int i = 0; i < magic[3]; ++i) {
    uint8_t raw[4];
    read_exactly(raw, sizeof raw);
    const int64_t extent = int64_t{raw[0]} << 24 | raw[1] << 16 | raw[2] << 8 | raw[3];
    if (extent != 0 && bytes > kMaxBytes / extent) throw std::runtime_error(path + ": too large");
    bytes *= extent;
    array.shape.push_back(extent);
  }
  array.data.resize(static_cast<size_t>(bytes));
  read_exactly(array.data.data(), array.data.size());
  uint8_t extra;
  if (read_some(file.get(), &extra, 1, path) != 0) {
    throw std::runtime_error(path + ": longer than its header says");
  }
  return array;
}
