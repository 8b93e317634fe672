// Implements the backend's kernels.h and launch.h for an emulated device: generated kernels are
// compiled for the host, and each thread of a block is a fiber (host_device.h).
#include "tests/backends/cuda/emulated/device.h"

#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/common/counters.h"
#include "backends/cuda/common/move.h"
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
  Index index;
  Index dim;
  Index grid;
  std::function<void(Index thread)> run;

  explicit Block(size_t n, size_t stack = kStack)
      : threads(n), stacks(n, std::vector<char>(stack)), done(n) {}
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
  b.run({i % b.dim.x, i / b.dim.x, 0});
  b.done[b.current] = true;
}

void run_block(Block& b) {
  block = &b;
  const size_t n = b.threads.size();
  for (auto& met : b.met) met.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    getcontext(&b.threads[i]);
    b.threads[i].uc_stack.ss_sp = b.stacks[i].data();
    b.threads[i].uc_stack.ss_size = b.stacks[i].size();
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

namespace emulated {
namespace {

constexpr size_t kLargeStack = 256 * 1024;
std::vector<std::array<char, kMostGathered>> places;
std::vector<char> shared_memory;
std::exception_ptr thrown;

}  // namespace

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

char* exchanged(unsigned lane) { return places[own_thread() / 32 * 32 + lane].data(); }

char* dynamic_shared() {
  const auto at = reinterpret_cast<uintptr_t>(shared_memory.data());
  return shared_memory.data() + (1024 - at % 1024) % 1024;
}

void meet(bool warp) {
  const uint3 mine = threadIdx;
  meet_others(warp);
  threadIdx = mine;
}

void run_grid(dim3 blocks, dim3 threads, size_t shared, const std::function<void()>& kernel) {
  Block b(threads.x * threads.y, kLargeStack);
  places.resize(threads.x * threads.y + 31);
  thrown = nullptr;
  b.run = [&](Index thread) {
    threadIdx = {thread.x, thread.y, 0};
    try {
      kernel();
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  b.dim = {threads.x, threads.y, 1};
  blockDim = threads;
  gridDim = blocks;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        blockIdx = {x, y, z};
        shared_memory.assign(shared + 1024, static_cast<char>(0xFF));
        run_block(b);
        if (thrown) std::rethrow_exception(thrown);
      }
    }
  }
}

}  // namespace emulated

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
  const size_t n = size_t{threads.x} * threads.y;
  Block b(n);
  std::vector<uint32_t> places(n + 32);
  b.run = [&](Index thread) {
    reinterpret_cast<Run>(function)(params.data(), thread, b.index, b.dim, b.grid, &meet_others,
                                    places.data());
  };
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
  static const Properties small{4, 1024, 227 * 1024, 1 << 20, 9, 0};
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

void fail(cudaError_t /*status*/, const char* what) { throw std::runtime_error(what); }

void allow_shared(const mt_ctx& /*ctx*/, const void* /*kernel*/, size_t bytes) {
  if (bytes > properties(0).shared)
    throw std::runtime_error("a block has at most 227 KiB of shared memory");
}

Grid grid_for(const mt_ctx& /*ctx*/, int64_t n, int threads, int /*waves*/) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>((n + threads - 1) / threads, 3)));
  grid.threads = dim3(static_cast<unsigned>(threads));
  return grid;
}

void* scratch_bytes(mt_ctx& ctx, size_t bytes) { return ctx.scratch(&ctx, bytes); }

void move(mt_ctx& /*ctx*/, const sdk::TensorView& from, const sdk::TensorView& to) {
  const auto size = static_cast<size_t>(sdk::itemsize(to.dtype()));
  for (int64_t i = 0; i < to.numel(); ++i) {
    int64_t rest = i, in = 0, out = 0;
    for (int d = to.ndim() - 1; d >= 0; --d) {
      in += rest % to.size(d) * from.stride(d);
      out += rest % to.size(d) * to.stride(d);
      rest /= to.size(d);
    }
    std::memcpy(static_cast<char*>(to.raw()) + out * size,
                static_cast<const char*>(from.raw()) + in * size, size);
  }
}

ContiguousScratch::ContiguousScratch(mt_ctx& ctx, const sdk::TensorView& like, mt_dtype dtype)
    : tensor_(*like.get()) {
  int64_t stride = 1;
  for (int d = like.ndim() - 1; d >= 0; --d) {
    strides_[d] = stride;
    stride *= like.size(d);
  }
  tensor_.dl.strides = strides_;
  tensor_.dl.data = scratch_bytes(ctx, static_cast<size_t>(stride * sdk::itemsize(dtype)));
}

}  // namespace mytorch::cuda

// Kernels get what they ask for.
extern "C" cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*which*/,
                                            int /*value*/) {
  return cudaSuccess;
}
