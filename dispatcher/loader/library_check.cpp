#include "dispatcher/loader/library_check.h"

#include <elf.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "core/types/errors.h"

namespace mytorch {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#else
constexpr int kMachine = EM_NONE;  // not known: any
#endif

constexpr uint64_t kPage = 4096;

class Library {
 public:
  explicit Library(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      fail(ErrorCode::kIo, "[backend] ", path, " is not a file: name a backend's shared library");
    }
    file_.open(path, std::ios::binary | std::ios::ate);
    if (!file_) fail(ErrorCode::kIo, "[backend] cannot open ", path, ": ", std::strerror(errno));
    size_ = static_cast<uint64_t>(file_.tellg());
  }

  void check() {
    check_header();
    read_segments();
    check_dynamic();
  }

 private:
  [[noreturn]] void damaged(const char* what) const {
    fail(ErrorCode::kIo, "[backend] ", path_, " is ", what, ": copy or build it again");
  }
  void need(bool fine, const char* what = "damaged") const {
    if (!fine) damaged(what);
  }
  bool inside_file(uint64_t offset, uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }
  template <class T>
  std::vector<T> read(uint64_t offset, uint64_t n) {
    need(n <= size_ && inside_file(offset, n * sizeof(T)), "truncated");
    std::vector<T> found(n);
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char*>(found.data()), static_cast<std::streamsize>(n * sizeof(T)));
    need(static_cast<bool>(file_), "truncated");
    return found;
  }

  void check_header() {
    need(size_ >= sizeof(Elf64_Ehdr), "no shared library");
    elf_ = read<Elf64_Ehdr>(0, 1)[0];
    need(std::memcmp(elf_.e_ident, ELFMAG, SELFMAG) == 0, "no shared library");
    need(elf_.e_ident[EI_CLASS] == ELFCLASS64 && elf_.e_ident[EI_DATA] == ELFDATA2LSB,
         "not a 64-bit shared library");
    need(elf_.e_type == ET_DYN, "no shared library");
    need(elf_.e_machine == kMachine || kMachine == EM_NONE, "for another kind of machine");
    need(elf_.e_phentsize == sizeof(Elf64_Phdr) && elf_.e_phnum > 0);
    // The table of sections is the last thing in a file, where there is one.
    need(elf_.e_shoff == 0 || inside_file(elf_.e_shoff, uint64_t{elf_.e_shnum} * elf_.e_shentsize),
         "truncated");
  }

  void read_segments() {
    uint64_t end = 0;
    for (const Elf64_Phdr& s : read<Elf64_Phdr>(elf_.e_phoff, elf_.e_phnum)) {
      if (s.p_type == PT_DYNAMIC) dynamic_.push_back(s);
      if (s.p_type == PT_LOAD) {
        need(inside_file(s.p_offset, s.p_filesz), "truncated");
        need(s.p_filesz <= s.p_memsz && s.p_memsz <= uint64_t{1} << 40 &&
             s.p_vaddr <= uint64_t{1} << 40 && s.p_vaddr >= end &&
             (s.p_vaddr - s.p_offset) % kPage == 0);
        end = s.p_vaddr + s.p_memsz;
        loaded_.push_back(s);
      } else if (s.p_type == PT_TLS || s.p_type == PT_GNU_RELRO) {
        others_.push_back(s);
      }
    }
    for (const Elf64_Phdr& s : others_) need(in_memory(s.p_vaddr, s.p_filesz));
    need(dynamic_.size() == 1);
  }

  bool in_memory(uint64_t address, uint64_t bytes) const {
    for (const Elf64_Phdr& s : loaded_) {
      if (address >= s.p_vaddr && address - s.p_vaddr <= s.p_memsz &&
          bytes <= s.p_memsz - (address - s.p_vaddr)) {
        return true;
      }
    }
    return false;
  }

  void check_dynamic() {
    const Elf64_Phdr& segment = dynamic_[0];
    bool mapped = false;
    for (const Elf64_Phdr& s : loaded_) {
      mapped |= segment.p_offset >= s.p_offset &&
                segment.p_offset - s.p_offset + segment.p_filesz <= s.p_filesz &&
                segment.p_vaddr - s.p_vaddr == segment.p_offset - s.p_offset;
    }
    need(mapped);
    std::map<int64_t, uint64_t> given;
    bool ended = false;
    for (const Elf64_Dyn& d :
         read<Elf64_Dyn>(segment.p_offset, segment.p_filesz / sizeof(Elf64_Dyn))) {
      if ((ended = d.d_tag == DT_NULL)) break;
      if (d.d_tag == DT_NEEDED) names_.push_back(d.d_un.d_val);
      given[d.d_tag] = d.d_un.d_val;
    }
    need(ended);
    for (const int64_t tag : {DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_GNU_HASH}) {
      need(given.contains(tag) || (tag == DT_GNU_HASH && given.contains(DT_HASH)));
    }
    constexpr std::pair<int64_t, int64_t> kTables[] = {{DT_STRTAB, DT_STRSZ},
                                                       {DT_RELA, DT_RELASZ},
                                                       {DT_JMPREL, DT_PLTRELSZ},
                                                       {DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                                                       {DT_FINI_ARRAY, DT_FINI_ARRAYSZ},
                                                       {DT_SYMTAB, DT_NULL},
                                                       {DT_HASH, DT_NULL},
                                                       {DT_GNU_HASH, DT_NULL},
                                                       {DT_PLTGOT, DT_NULL},
                                                       {DT_INIT, DT_NULL},
                                                       {DT_FINI, DT_NULL},
                                                       {DT_VERSYM, DT_NULL},
                                                       {DT_VERNEED, DT_NULL},
                                                       {DT_VERDEF, DT_NULL}};
    for (const auto& [tag, size] : kTables) {
      if (!given.contains(tag)) continue;
      need(in_memory(given[tag], size != DT_NULL && given.contains(size) ? given[size] : 1));
    }
    need(!given.contains(DT_SYMENT) || given[DT_SYMENT] == sizeof(Elf64_Sym));
    need(!given.contains(DT_RELAENT) || given[DT_RELAENT] == sizeof(Elf64_Rela));
    for (const int64_t tag : {DT_SONAME, DT_RUNPATH, DT_RPATH}) {
      if (given.contains(tag)) names_.push_back(given[tag]);
    }
    for (const uint64_t name : names_) need(name < given[DT_STRSZ]);
  }

  std::string path_;
  std::ifstream file_;
  uint64_t size_ = 0;
  Elf64_Ehdr elf_{};
  std::vector<Elf64_Phdr> loaded_, others_, dynamic_;
  std::vector<uint64_t> names_;  // as places in the table of strings
};

}  // namespace

void check_library(const std::string& path) { Library(path).check(); }

}  // namespace mytorch
