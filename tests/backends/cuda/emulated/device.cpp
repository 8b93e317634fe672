// Implements the backend's kernels.h and launch.h for an emulated device: generated kernels are
// compiled for the host, and each thread of a block is a fiber (host_device.h).
#include "tests/backends/cuda/emulated/device.h"

#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/common/counters.h"
#include "backends/cuda/programs/kernels.h"
#include "backends/cuda/runtime/faults.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

struct Index {
  unsigned x, y, z;
};
using Run = void (*)(const void* params, Index thread, Index block, Index dim, Index grid,
                     void (*turn)(bool), uint32_t* places);

constexpr const char* kBefore = R"(
#include "tests/backends/cuda/programs/host_device.h"
#include "mytorch/backend/dtype.h"
thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static void (*turn)(bool);
static uint32_t* places;
void meet(bool warp) {
  const Index mine = threadIdx;
  turn(warp);
  threadIdx = mine;
}
uint32_t& exchange(unsigned thread) { return places[thread]; }
namespace text {
)";
constexpr const char* kAfter = R"(
float to_float(f16 x) { return float(mytorch::sdk::Half::from_bits(x.bits)); }
float to_float(bf16 x) { return float(mytorch::sdk::BFloat16::from_bits(x.bits)); }
void round_to(f16& to, float x) { to.bits = mytorch::sdk::Half(x).bits; }
void round_to(bf16& to, float x) { to.bits = mytorch::sdk::BFloat16(x).bits; }
}  // namespace text
extern "C" void run(const void* params, Index thread, Index block, Index dim, Index grid,
                    void (*t)(bool), uint32_t* p) {
  gridDim = grid;
  threadIdx = thread;
  blockIdx = block;
  blockDim = dim;
  turn = t;
  places = p;
  text::kernel(*static_cast<const text::P*>(params));
}
)";

constexpr size_t kStack = 64 * 1024;

// The threads of a block. Each runs until it waits at a barrier.
struct Block {
  ucontext_t scheduler;
  std::vector<ucontext_t> threads;
  std::vector<std::vector<char>> stacks;
  std::vector<bool> done;
  std::vector<int>
      met[2];  // per thread, the barriers that it has reached: of the block, of the warp
  size_t current = 0;
  Run run;
  const void* params;
  Index index;
  Index dim;
  Index grid;
  std::vector<uint32_t> places;
};
Block* block = nullptr;

// A barrier: other threads run until all unfinished threads of the group have reached it.
void meet_others(bool warp) {
  Block& b = *block;
  const size_t mine = b.current;
  std::vector<int>& met = b.met[warp ? 1 : 0];
  const int turn = ++met[mine];
  const size_t begin = warp ? mine / 32 * 32 : 0;
  const size_t end = warp ? std::min(begin + 32, met.size()) : met.size();
  for (bool all = false; !all;) {
    all = true;
    for (size_t i = begin; i < end; ++i) all = all && (b.done[i] || met[i] >= turn);
    if (!all) swapcontext(&b.threads[mine], &b.scheduler);
  }
}

void thread_main() {
  Block& b = *block;
  const unsigned i = static_cast<unsigned>(b.current);
  b.run(b.params, {i % b.dim.x, i / b.dim.x, 0}, b.index, b.dim, b.grid, &meet_others,
        b.places.data());
  b.done[b.current] = true;
}

void run_block(Block& b) {
  block = &b;
  const size_t n = b.threads.size();
  for (auto& met : b.met) met.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    getcontext(&b.threads[i]);
    b.threads[i].uc_stack.ss_sp = b.stacks[i].data();
    b.threads[i].uc_stack.ss_size = kStack;
    b.threads[i].uc_link = &b.scheduler;
    makecontext(&b.threads[i], &thread_main, 0);
    b.done[i] = false;
  }
  for (bool left = true; left;) {
    left = false;
    for (size_t i = 0; i < n; ++i) {
      if (b.done[i]) continue;
      b.current = i;
      swapcontext(&b.scheduler, &b.threads[i]);
      left = left || !b.done[i];
    }
  }
}

}  // namespace

int texts_compiled = 0;

Function load_function(const std::string& text, int32_t /*device*/) {
  namespace fs = std::filesystem;
  const fs::path base =
      fs::temp_directory_path() /
      ("mytorch_emulated_" + std::to_string(::getpid()) + "_" + std::to_string(texts_compiled++));
  const std::string source = base.string() + ".cpp";
  const std::string library = base.string() + ".so";
  std::ofstream(source) << kBefore << text << kAfter;
  const std::string command = std::string(EMULATED_COMPILER) + " -std=c++20 -O0 -w -shared -fPIC " +
                              EMULATED_INCLUDES + " -o " + library + " " + source;
  const bool compiled = std::system(command.c_str()) == 0;
  void* handle = compiled ? dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (std::getenv("EMULATED_KEEP") == nullptr) {
    fs::remove(source);
    fs::remove(library);
  }
  void* run = handle != nullptr ? dlsym(handle, "run") : nullptr;
  if (run == nullptr)
    throw sdk::Error(MT_ERROR_INTERNAL, "the host's compiler rejected a kernel text");
  return static_cast<Function>(run);
}

int resident_blocks(Function /*function*/, int64_t threads) {
  return static_cast<int>(properties(0).threads / threads);
}

void launch_function(const mt_ctx& /*ctx*/, const char* /*what*/, Function function, dim3 blocks,
                     dim3 threads, Params& params) {
  Block b;
  const size_t n = size_t{threads.x} * threads.y;
  b.threads.resize(n);
  b.stacks.assign(n, std::vector<char>(kStack));
  b.done.resize(n);
  b.places.resize(n + 32);
  b.run = reinterpret_cast<Run>(function);
  b.params = params.data();
  b.dim = {threads.x, threads.y, 1};
  b.grid = {blocks.x, blocks.y, 1};
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      b.index = {x, y, 0};
      run_block(b);
    }
  }
}

namespace internal {
thread_local constinit int32_t current_device = 0;
void change_device(int32_t index) { current_device = index; }
}  // namespace internal

const Properties& properties(int32_t /*index*/) {
  static const Properties small{4, 1024, 48 * 1024, 1 << 20, 9, 0};
  return small;
}

uint32_t* counters_of(mt_ctx& /*ctx*/) {
  static uint32_t counters[kCounters];
  return counters;
}

Fault* fault_of(const mt_ctx& /*ctx*/) {
  static Fault fault;
  return &fault;
}
uint32_t fault_site(const char* /*op*/, const char* /*message*/) { return 7; }

void* scratch_bytes(mt_ctx& ctx, size_t bytes) { return ctx.scratch(&ctx, bytes); }

}  // namespace mytorch::cuda
