// The instructions of compute capability 9.0a that attention uses: barriers in shared memory, tile
// loads by the tensor memory accelerator (TMA), and matrix products of a warpgroup (wgmma).
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace mytorch::cuda::hopper {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- barriers in shared memory. A wait for phase p returns once phase p is complete; phases
// alternate between 0 and 1. A wait for phase 1 of a new barrier returns immediately.

struct Barrier {
  uint64_t word;

  __device__ void initialize(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)),
                 "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word))
                 : "memory");
  }
  // Arrives, and makes the phase wait for `bytes` bytes of loads.
  __device__ void arrive_and_expect(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
        "r"(bytes)
        : "memory");
  }
  __device__ void wait(uint32_t phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(shared_address(&word)),
        "r"(phase)
        : "memory");
  }
};

// Makes initialized barriers visible to the TMA.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A position in a ring of kStages buffers.
template <int kStages>
struct Position {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// ---- named barriers of warps: `threads` threads arrive or wait.

__device__ inline void named_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- registers per thread of a warpgroup

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- tile loads

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the box of a five-dimensional map whose first element is (0, row, 0, head, batch).
__device__ inline void load_tile(void* to, const CUtensorMap& map, Barrier& barrier, int row,
                                 int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier.word)), "r"(0), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// Loads `bytes` contiguous bytes, a multiple of 16.
__device__ inline void load_bytes(void* to, const void* from, uint32_t bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier.word))
      : "memory");
}

// ---- stores that matrix products read

// Stores four matrices of 8 x 8 from fragments. Lane 8 m + r has the address of row r of matrix m.
__device__ inline void store_matrices(void* row, const uint32_t* matrices) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}
// Makes this thread's stores to shared memory visible to products.
__device__ inline void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- sums in global memory that several thread blocks add to, in turns

__device__ inline void await_turn(const uint32_t* turn, uint32_t value) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  } while (now != value);
}
__device__ inline void pass_turn(uint32_t* turn) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(turn) : "memory");
}
// Orders what precedes a turn, or follows one, with copies and additions of bytes.
__device__ inline void publish_turn() { asm volatile("fence.proxy.async;" ::: "memory"); }

// Stores to global memory, or adds float32 to it, from shared memory.
__device__ inline void store_bytes(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void add_bytes(float* to, const float* from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ inline void bytes_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until shared memory has been read, or all is done.
__device__ inline void bytes_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void bytes_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// ---- matrix products

// Orders accesses to registers before the products that follow.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are running.
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving accesses to accumulators across this point.
template <int kCount>
__device__ inline void pin_registers(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// The descriptor of an operand in shared memory. Its rows are divided into chunks of kChunk
// elements (32 or 64), with all rows of a chunk before the next chunk, swizzled over the chunk's
// bytes. `leading` is the number of bytes from chunk to chunk.
template <int kChunk>
__device__ inline uint64_t descriptor(const void* tile, uint32_t leading) {
  static_assert(kChunk == 64 || kChunk == 32);
  constexpr uint64_t kSwizzle = kChunk == 64 ? 1 : 2;
  constexpr uint64_t kEightRows = 8 * kChunk * 2;
  return (uint64_t{shared_address(tile)} & 0x3FFFF) >> 4 |
         (uint64_t{leading} & 0x3FFFF) >> 4 << 16 | kEightRows >> 4 << 32 | kSwizzle << 62;
}
// The descriptor `bytes` bytes further.
__device__ inline uint64_t descriptor_after(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// Multiply<T, N>::rows: D (64 x N) = A (64 x 16) B^T (N x 16) [+ D], both from shared memory.
// Multiply<T, N>::columns: D (64 x N) = A (64 x 16, four registers) B (16 x N) [+ D].
// Multiply<T, N>::outer: D (64 x N) = A^T (16 x 64) B (16 x N) [+ D], both from shared memory.
template <class T, int kN>
struct Multiply;

#define MT_8_REGISTERS(d, i)                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define MT_16_REGISTERS(d, i) MT_8_REGISTERS(d, i), MT_8_REGISTERS(d, i + 8)
#define MT_32_REGISTERS(d, i) MT_16_REGISTERS(d, i), MT_16_REGISTERS(d, i + 16)
#define MT_64_REGISTERS(d, i) MT_32_REGISTERS(d, i), MT_32_REGISTERS(d, i + 32)

#define MT_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define MT_NAMES_32 MT_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define MT_NAMES_40 MT_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define MT_NAMES_48 MT_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define MT_NAMES_56 MT_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define MT_NAMES_64 MT_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define MT_NAMES_72 MT_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define MT_NAMES_80 MT_NAMES_72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define MT_NAMES_88 MT_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define MT_NAMES_96 MT_NAMES_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define MT_NAMES_128                                                                        \
  MT_NAMES_96                                                                               \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113," \
  "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// P0 to P5 name the operands after the accumulators.
#define MT_MULTIPLY(T, TYPE, N, P0, P1, P2, P3, P4, P5, NAMES, ...)                             \
  template <>                                                                                   \
  struct Multiply<T, N> {                                                                       \
    __device__ static void rows(float (&d)[N / 2], uint64_t a, uint64_t b, int add) {           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2                                       \
                   ", 0;\n"                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES   \
                   "}, " P0 ", " P1 ", p, 1, 1, 0, 0;\n}\n"                                     \
                   : __VA_ARGS__                                                                \
                   : "l"(a), "l"(b), "r"(add));                                                 \
    }                                                                                           \
    __device__ static void outer(float (&d)[N / 2], uint64_t a, uint64_t b, int add) {          \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P2                                       \
                   ", 0;\n"                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES   \
                   "}, " P0 ", " P1 ", p, 1, 1, 1, 1;\n}\n"                                     \
                   : __VA_ARGS__                                                                \
                   : "l"(a), "l"(b), "r"(add));                                                 \
    }                                                                                           \
    __device__ static void columns(float (&d)[N / 2], const uint32_t* a, uint64_t b, int add) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P5                                       \
                   ", 0;\n"                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES   \
                   "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, 1;\n}\n"              \
                   : __VA_ARGS__                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));             \
    }                                                                                           \
  };
#define MT_MULTIPLY_BOTH(N, P0, P1, P2, P3, P4, P5, NAMES, ...)                     \
  MT_MULTIPLY(__nv_bfloat16, "bf16", N, P0, P1, P2, P3, P4, P5, NAMES, __VA_ARGS__) \
  MT_MULTIPLY(__half, "f16", N, P0, P1, P2, P3, P4, P5, NAMES, __VA_ARGS__)

MT_MULTIPLY_BOTH(32, "%16", "%17", "%18", "%19", "%20", "%21", MT_NAMES_16, MT_16_REGISTERS(d, 0))
MT_MULTIPLY_BOTH(64, "%32", "%33", "%34", "%35", "%36", "%37", MT_NAMES_32, MT_32_REGISTERS(d, 0))
MT_MULTIPLY_BOTH(80, "%40", "%41", "%42", "%43", "%44", "%45", MT_NAMES_40, MT_32_REGISTERS(d, 0),
                 MT_8_REGISTERS(d, 32))
MT_MULTIPLY_BOTH(96, "%48", "%49", "%50", "%51", "%52", "%53", MT_NAMES_48, MT_32_REGISTERS(d, 0),
                 MT_16_REGISTERS(d, 32))
MT_MULTIPLY_BOTH(112, "%56", "%57", "%58", "%59", "%60", "%61", MT_NAMES_56, MT_32_REGISTERS(d, 0),
                 MT_16_REGISTERS(d, 32), MT_8_REGISTERS(d, 48))
MT_MULTIPLY_BOTH(128, "%64", "%65", "%66", "%67", "%68", "%69", MT_NAMES_64, MT_64_REGISTERS(d, 0))
MT_MULTIPLY_BOTH(144, "%72", "%73", "%74", "%75", "%76", "%77", MT_NAMES_72, MT_64_REGISTERS(d, 0),
                 MT_8_REGISTERS(d, 64))
MT_MULTIPLY_BOTH(160, "%80", "%81", "%82", "%83", "%84", "%85", MT_NAMES_80, MT_64_REGISTERS(d, 0),
                 MT_16_REGISTERS(d, 64))
MT_MULTIPLY_BOTH(176, "%88", "%89", "%90", "%91", "%92", "%93", MT_NAMES_88, MT_64_REGISTERS(d, 0),
                 MT_16_REGISTERS(d, 64), MT_8_REGISTERS(d, 80))
MT_MULTIPLY_BOTH(192, "%96", "%97", "%98", "%99", "%100", "%101", MT_NAMES_96,
                 MT_64_REGISTERS(d, 0), MT_32_REGISTERS(d, 64))
MT_MULTIPLY_BOTH(256, "%128", "%129", "%130", "%131", "%132", "%133", MT_NAMES_128,
                 MT_64_REGISTERS(d, 0), MT_64_REGISTERS(d, 64))

}  // namespace mytorch::cuda::hopper
