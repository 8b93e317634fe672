#include "dispatcher/loader/library_check.h"

#include <elf.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/types/errors.h"

namespace mytorch {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#else
constexpr int kMachine = EM_NONE;  // any
#endif

struct Seal {
  char magic[8];
  uint64_t crc;  // of all preceding bytes
};

class LibraryFile {
 public:
  explicit LibraryFile(const std::string& path) : path_(path) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      fail(ErrorCode::kIo, "[backend] ", path, " is not a file: name a backend's shared library");
    }
    file_.open(path, std::ios::binary | std::ios::ate);
    if (!file_) fail(ErrorCode::kIo, "[backend] cannot open ", path, ": ", std::strerror(errno));
    size_ = static_cast<uint64_t>(file_.tellg());
  }

  void check() {
    need(size_ >= sizeof(Elf64_Ehdr), "not a shared library");
    const auto elf = read<Elf64_Ehdr>(0);
    need(std::memcmp(elf.e_ident, ELFMAG, SELFMAG) == 0, "not a shared library");
    need(elf.e_ident[EI_CLASS] == ELFCLASS64 && elf.e_phentsize == sizeof(Elf64_Phdr),
         "not a 64-bit shared library");
    need(elf.e_machine == kMachine || kMachine == EM_NONE, "for another kind of machine");
    // The section table, if any, is at the end of the file.
    need(elf.e_shoff == 0 || inside(elf.e_shoff, uint64_t{elf.e_shnum} * elf.e_shentsize),
         "truncated");
    for (uint64_t i = 0; i < elf.e_phnum; ++i) {
      const auto segment = read<Elf64_Phdr>(elf.e_phoff + i * sizeof(Elf64_Phdr));
      need(segment.p_type != PT_LOAD || inside(segment.p_offset, segment.p_filesz), "truncated");
    }
    const auto seal = read<Seal>(size_ - sizeof(Seal));
    if (std::memcmp(seal.magic, "mtseal01", sizeof(seal.magic)) == 0) {
      need(seal.crc == crc_of(size_ - sizeof(Seal)), "damaged (checksum mismatch)");
    }
  }

 private:
  void need(bool fine, const char* what) const {
    if (!fine) fail(ErrorCode::kIo, "[backend] ", path_, " is ", what, ": copy or build it again");
  }
  bool inside(uint64_t offset, uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }
  template <class T>
  T read(uint64_t offset) {
    T found{};
    need(inside(offset, sizeof(T)), "truncated");
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char*>(&found), sizeof(T));
    need(static_cast<bool>(file_), "truncated");
    return found;
  }
  uint64_t crc_of(uint64_t bytes) {
    std::vector<char> chunk(1 << 18);
    file_.seekg(0);
    uint64_t crc = 0;
    while (bytes > 0) {
      const uint64_t n = std::min<uint64_t>(bytes, chunk.size());
      file_.read(chunk.data(), static_cast<std::streamsize>(n));
      need(static_cast<bool>(file_), "truncated");
      crc = crc32(crc, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(n));
      bytes -= n;
    }
    return crc;
  }

  std::string path_;
  std::ifstream file_;
  uint64_t size_ = 0;
};

}  // namespace

void check_library(const std::string& path) { LibraryFile(path).check(); }

}  // namespace mytorch
