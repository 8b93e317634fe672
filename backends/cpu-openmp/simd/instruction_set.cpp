#include "backends/cpu-openmp/simd/instruction_set.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <string>

#include "backends/cpu-openmp/simd/matrix_tiles.h"
#include "hwy/targets.h"
#include "mytorch/backend/error.h"

namespace mytorch::simd {
namespace {

// Whether a pin leaves out the products of bfloat16, and tiles.
bool without_pairs = false, without_tiles = false;

constexpr int64_t better_than(int64_t target) { return target - 1; }  // which have lower bits

// Whether tests take AVX-512 for absent (tests/needs.py).
bool without_avx3() {
  const char* without = std::getenv("MYTORCH_TEST_WITHOUT");
  if (without == nullptr) return false;
  return ("," + std::string(without) + ",").find(",avx3,") != std::string::npos;
}

int64_t usable() {
  const int64_t sets = hwy::SupportedTargets() & HWY_TARGETS;
  return without_avx3() ? sets & ~better_than(HWY_AVX2) : sets;
}

bool processor_has_pairs() {
#if defined(__x86_64__)
  return (HWY_TARGETS & HWY_AVX3) != 0 && !without_avx3() &&
         __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

// Whether the processor has tiles of bfloat16, and the system lets this process use them, which it
// must be asked for once.
bool process_has_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  if (!processor_has_pairs()) return false;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBfloat16Tiles = 1u << 22, kTiles = 1u << 24;
  if ((d & kBfloat16Tiles) == 0 || (d & kTiles) == 0) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // Linux's ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

int64_t target_named(std::string_view name) {
  if (name == "avx3" || name == "avx3_bf16" || name == "avx3_amx") return HWY_AVX3;
  if (name == "avx2") return HWY_AVX2;
  if (name == "plain") return HWY_SCALAR;
  throw sdk::Error(MT_ERROR_VALUE, "MYTORCH_CPU=" + std::string(name) +
                                       ": expected avx2, avx3, avx3_bf16, avx3_amx or plain");
}

constexpr bool compiled_for(int64_t target) { return (HWY_TARGETS & target) != 0; }

}  // namespace

std::string sets_left_out() {
#if defined(__x86_64__)
  constexpr bool avx3 = compiled_for(HWY_AVX3), avx2 = compiled_for(HWY_AVX2);
  return avx3 && avx2 ? "" : avx3 ? "AVX2" : avx2 ? "AVX3" : "AVX2 and AVX3";
#else
  return "";
#endif
}

void pin_instruction_set(std::string_view name) {
  const int64_t target = usable() & target_named(name);
  if (target == 0 || (name == "avx3_bf16" && !processor_has_pairs()) ||
      (name == "avx3_amx" && !process_has_tiles())) {
    // A build that leaves the set out may run on a processor that has it.
    const bool built = compiled_for(target_named(name));
    throw sdk::Error(MT_ERROR_UNSUPPORTED,
                     "MYTORCH_CPU=" + std::string(name) + ": this " +
                         (built ? "processor" : "build (CMake's MYTORCH_CPU_SETS)") +
                         " lacks the instruction set; the best one is " + instruction_set());
  }
  without_tiles = name != "avx3_amx";
  without_pairs = without_tiles && name != "avx3_bf16";
  hwy::DisableTargets(better_than(target));
}

void use_best_instruction_set() {
  if (without_avx3()) hwy::DisableTargets(better_than(HWY_AVX2));
}

const char* instruction_set() {
  const int64_t sets = usable();
  return hwy::TargetName(sets & -sets);
}

// Products ask each time, so this does not ask Highway, which in a virtual machine takes
// microseconds to describe the processor.
bool has_bfloat16_pairs() {
  static const bool has = processor_has_pairs();
  return has && !without_pairs;
}

bool has_matrix_tiles() {
  // A process that does not use them does not ask for them: it then needs larger signal stacks.
  if (without_tiles) return false;
  static const bool has = process_has_tiles();
  return has;
}

}  // namespace mytorch::simd
