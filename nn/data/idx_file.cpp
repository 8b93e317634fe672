#include "nn/data/idx_file.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/types/errors.h"
#include "nn/common/byte_source.h"
#include "nn/common/host_tensor.h"

namespace mytorch::nn::data {
namespace {

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void read_exactly(ByteSource& source, void* to, size_t bytes, const char* what) {
  const size_t got = source.read(to, bytes);
  if (got != bytes) {
    source.fail_file(absl::StrCat("is cut short: it ends after ", got, " of the ", bytes,
                                  " bytes of its ", what, "; download it again"));
  }
}

void check_magic(const ByteSource& source, const uint8_t* magic, int ndim) {
  const uint32_t expected = 0x800u + static_cast<uint32_t>(ndim);
  const uint32_t found = big_endian(magic);
  if (found == expected) return;
  if (found >> 16 == 0 && (found & 0xff00) == 0x800) {
    source.fail_file(absl::StrCat("is an array of ", found & 0xff, " dimensions where one of ",
                                  ndim, " is needed: have images and labels been swapped?"));
  }
  source.fail_file(absl::StrCat("begins with 0x", absl::Hex(found, absl::kZeroPad8), ", not 0x",
                                absl::Hex(expected, absl::kZeroPad8),
                                " as an IDX array of bytes with ", ndim,
                                " dimensions does: use the original file"));
}

}  // namespace

Tensor read_idx(const std::string& path, int ndim) {
  ByteSource source(path);
  uint8_t magic[4];
  read_exactly(source, magic, sizeof(magic), "header");
  check_magic(source, magic, ndim);
  std::vector<int64_t> sizes;
  uint64_t bytes = 1;
  uint64_t extent = 1;  // bytes, if zeros were ones: no tensor is larger than 2^59
  for (int i = 0; i < ndim; ++i) {
    uint8_t size[4];
    read_exactly(source, size, sizeof(size), "header");
    sizes.push_back(big_endian(size));
    const auto next = static_cast<uint64_t>(sizes.back());
    if (__builtin_mul_overflow(extent, std::max<uint64_t>(next, 1), &extent) ||
        extent > uint64_t{1} << 58) {
      bytes = UINT64_MAX;
      break;
    }
    bytes *= next;
  }
  if (bytes > source.limit()) {
    source.fail_file(absl::StrCat("is cut short: its header promises an array of ",
                                  shape_str(sizes),
                                  " bytes, more than the file can hold; get it "
                                  "again"));
  }
  Tensor array = fresh_host_tensor(sizes, kUInt8);
  read_exactly(source, fresh_data(array), bytes, "array");
  uint8_t extra;
  if (source.read(&extra, 1) != 0) {
    source.fail_file(absl::StrCat("goes on after the ", shape_str(sizes),
                                  " bytes that its header promises: download it again"));
  }
  return array;
}

}  // namespace mytorch::nn::data
