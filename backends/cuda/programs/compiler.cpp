#include "backends/cuda/programs/compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <nvrtc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "mytorch/backend/error.h"

namespace mytorch::cuda {

const std::string_view kPrelude =
#include "cuda_text/prelude.inc"
    ""  // keeps the order: each text follows the one before
#include "cuda_text/node_ops.inc"
    ""
#include "cuda_text/operands.inc"
    ;
const std::string_view kFolds =
#include "cuda_text/folds.inc"
    ;
const std::string_view kComplex =
#include "cuda_text/complex.inc"
    ;

namespace {

namespace fs = std::filesystem;

void check(nvrtcResult result, const char* what) {
  if (result == NVRTC_SUCCESS) return;
  throw sdk::Error(MT_ERROR_INTERNAL, std::string(what) + ": " + nvrtcGetErrorString(result));
}

struct Compilation {
  nvrtcProgram program = nullptr;
  ~Compilation() {
    if (program != nullptr) nvrtcDestroyProgram(&program);
  }
};

// Returns the newest architecture that NVRTC knows and the device can run.
std::string architecture(int capability, bool* exact) {
  static const std::vector<int>* const known = [] {
    int count = 0;
    check(nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
    auto* list = new std::vector<int>(static_cast<size_t>(count));
    check(nvrtcGetSupportedArchs(list->data()), "nvrtcGetSupportedArchs");
    return list;
  }();
  int best = 0;
  for (const int arch : *known) {
    if (arch <= capability) best = std::max(best, arch);
  }
  *exact = best == capability;
  return (*exact ? "sm_" : "compute_") + std::to_string(best);
}

const char* const kOptions[] = {"-default-device", "--std=c++17"};

uint64_t fnv1a(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

fs::path cache_folder() {
  const auto set = [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* own = set("MYTORCH_CACHE")) return own;
  if (const char* xdg = set("XDG_CACHE_HOME")) return fs::path(xdg) / "mytorch";
  const char* home = set("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / ".cache" / "mytorch";
}

// The folder of kernels compiled ahead of time, found relative to this library.
const fs::path& ahead_folder() {
  static const fs::path* const folder = [] {
    Dl_info info{};
    const bool found = dladdr(kPrelude.data(), &info) != 0 && info.dli_fname != nullptr;
    return new fs::path(found ? fs::path(info.dli_fname).parent_path() / ".." / "cuda"
                              : fs::path());
  }();
  return *folder;
}

// Names an entry by a hash of everything on which the code depends. With 128 bits, collisions do
// not occur.
std::string entry_name(const std::string& text, int capability) {
  int major = 0;
  int minor = 0;
  nvrtcVersion(&major, &minor);
  std::string setting =
      std::to_string(major) + "." + std::to_string(minor) + " " + std::to_string(capability);
  for (const char* option : kOptions) setting += std::string(" ") + option;
  const uint64_t first = fnv1a(text, fnv1a(setting, 0xcbf29ce484222325));
  const uint64_t second = fnv1a(setting, fnv1a(text, 0x9e3779b97f4a7c15));
  return hex(first) + hex(second) + ".bin";
}

constexpr std::string_view kTitle = "mytorch kernel 1\n";

// Returns the code of an entry, or "" if it is absent or damaged.
std::string read_entry(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t head = kTitle.size() + 17;
  if (all.size() <= head || all.compare(0, kTitle.size(), kTitle) != 0) return "";
  std::string code = all.substr(head);
  if (all.compare(kTitle.size(), 16, hex(fnv1a(code, 0xcbf29ce484222325))) != 0) return "";
  return code;
}

// Writes a temporary file and renames it, so that concurrent readers see a whole entry or none.
void write_entry(const fs::path& path, const std::string& code) {
  static std::atomic<int> number{0};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return;
  const std::string fresh = path.string() + "." + std::to_string(::getpid()) + "." +
                            std::to_string(number.fetch_add(1)) + ".new";
  const std::string all = std::string(kTitle) + hex(fnv1a(code, 0xcbf29ce484222325)) + "\n" + code;
  const int fd = ::open(fresh.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return;
  size_t done = 0;
  while (done < all.size()) {
    const ssize_t n = ::write(fd, all.data() + done, all.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool written = ::close(fd) == 0 && done == all.size();
  if (!written || ::rename(fresh.c_str(), path.c_str()) != 0) ::unlink(fresh.c_str());
}

}  // namespace

std::string compile(const std::string& text, int capability) {
  Compilation compilation;
  check(nvrtcCreateProgram(&compilation.program, text.c_str(), "kernel.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  bool exact = false;
  const std::string arch = "--gpu-architecture=" + architecture(capability, &exact);
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(arch.c_str());
  const nvrtcResult result =
      nvrtcCompileProgram(compilation.program, static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    size_t size = 0;
    nvrtcGetProgramLogSize(compilation.program, &size);
    std::string log(size, '\0');
    if (size > 0) nvrtcGetProgramLog(compilation.program, log.data());
    // The assembler reports that the host is out of memory only in the log.
    const bool out_of_memory = result == NVRTC_ERROR_OUT_OF_MEMORY ||
                               log.find("Memory allocation failure") != std::string::npos;
    throw sdk::Error(
        out_of_memory ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
        std::string("NVRTC: ") + nvrtcGetErrorString(result) + "\n" + log.substr(0, 4000));
  }
  size_t size = 0;
  check(exact ? nvrtcGetCUBINSize(compilation.program, &size)
              : nvrtcGetPTXSize(compilation.program, &size),
        "the size of compiled code");
  std::string code(size, '\0');
  check(exact ? nvrtcGetCUBIN(compilation.program, code.data())
              : nvrtcGetPTX(compilation.program, code.data()),
        "compiled code");
  return code;
}

std::string compile_cached(const std::string& text, int capability) {
  const std::string name = entry_name(text, capability);
  const fs::path path = cache_folder() / "cuda" / name;
  std::string code = read_entry(path);
  if (code.empty()) code = read_entry(ahead_folder() / name);
  if (!code.empty()) return code;
  code = compile(text, capability);
  write_entry(path, code);
  return code;
}

void forget(const std::string& text, int capability) {
  // The cache is searched before the kernels compiled ahead of time.
  const fs::path path = cache_folder() / "cuda" / entry_name(text, capability);
  std::error_code error;
  fs::remove(path, error);
  write_entry(path, compile(text, capability));
}

void compile_ahead(const std::string& text, int capability, const std::string& folder) {
  const fs::path path = fs::path(folder) / entry_name(text, capability);
  if (read_entry(path).empty()) write_entry(path, compile(text, capability));
}

}  // namespace mytorch::cuda
