// The device functions of the contract: memory, copies, streams, events.
#include "backends/cuda/device/device.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::cuda {
namespace {

class Device : public mytorch::testing::Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    stream = ops.create_stream(nullptr, 0, 0);
    ASSERT_NE(stream, nullptr);
  }
  void TearDown() override {
    if (stream != nullptr) ops.destroy_stream(nullptr, 0, stream);
  }
  char* allocate(size_t bytes) {
    return static_cast<char*>(ops.allocate(nullptr, 0, bytes, stream));
  }
  void release(void* data) { ops.release(nullptr, 0, data, 0, stream); }

  const mt_device_ops& ops = device_ops();
  void* stream = nullptr;
};

std::vector<uint8_t> pattern(size_t bytes, unsigned seed) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>((i * 2654435761u + seed) >> 13);
  return data;
}

// Pageable memory goes through pinned buffers of 4 MiB.
class DeviceCopies : public Device, public ::testing::WithParamInterface<size_t> {};

TEST_P(DeviceCopies, KeepTheBytesInBothDirections) {
  const size_t bytes = GetParam();
  const std::vector<uint8_t> there = pattern(bytes, 1);
  std::vector<uint8_t> given = there, back(bytes);
  char* a = allocate(bytes);
  char* b = allocate(bytes);
  ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_TO_DEVICE, a, given.data(), bytes, stream), MT_OK);
  std::fill(given.begin(), given.end(), uint8_t{0});  // the copy has already read it
  ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_ON_DEVICE, b, a, bytes, stream), MT_OK);
  ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_TO_HOST, back.data(), b, bytes, stream), MT_OK);
  ASSERT_EQ(ops.synchronize(nullptr, 0, stream), MT_OK);
  EXPECT_TRUE(back == there);
  release(a);
  release(b);
}
INSTANTIATE_TEST_SUITE_P(Bytes, DeviceCopies,
                         ::testing::Values(size_t{1}, size_t{1000}, size_t{64} << 10,
                                           (size_t{64} << 10) + 1, size_t{4} << 20,
                                           (size_t{4} << 20) + 7, size_t{70} << 20),
                         ::testing::PrintToStringParamName());

TEST_F(Device, PinnedMemoryIsCopiedWithoutABuffer) {
  const size_t bytes = size_t{9} << 20;
  uint8_t* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), bytes), cudaSuccess);
  const std::vector<uint8_t> there = pattern(bytes, 5);
  std::memcpy(pinned, there.data(), bytes);
  char* a = allocate(bytes);
  ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_TO_DEVICE, a, pinned, bytes, stream), MT_OK);
  ASSERT_EQ(ops.synchronize(nullptr, 0, stream), MT_OK);
  std::memset(pinned, 0, bytes);
  ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_TO_HOST, pinned, a, bytes, stream), MT_OK);
  ASSERT_EQ(ops.synchronize(nullptr, 0, stream), MT_OK);
  EXPECT_EQ(std::memcmp(pinned, there.data(), bytes), 0);
  release(a);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Device, StreamsWaitForEvents) {
  void* other = ops.create_stream(nullptr, 0, -100);  // clamped to the highest priority
  ASSERT_NE(other, nullptr);
  const size_t bytes = size_t{256} << 20;
  char* a = allocate(bytes);
  char* b = allocate(bytes);
  std::vector<uint8_t> last(1);
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 20; ++i) {  // takes a while
      ASSERT_EQ(cudaMemsetAsync(a, 0, bytes, static_cast<cudaStream_t>(stream)), cudaSuccess);
    }
    ASSERT_EQ(cudaMemsetAsync(a, round, bytes, static_cast<cudaStream_t>(stream)), cudaSuccess);
    void* event = ops.record_event(nullptr, 0, stream);
    ASSERT_NE(event, nullptr);
    EXPECT_GE(ops.query_event(nullptr, event), 0);
    ASSERT_EQ(ops.wait_event(nullptr, 0, other, event), MT_OK);
    ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_ON_DEVICE, b, a, bytes, other), MT_OK);
    ASSERT_EQ(ops.copy(nullptr, 0, MT_COPY_TO_HOST, last.data(), b + bytes - 1, 1, other), MT_OK);
    ASSERT_EQ(ops.synchronize(nullptr, 0, other), MT_OK);
    EXPECT_EQ(last[0], round);
    ASSERT_EQ(ops.wait_event(nullptr, 0, nullptr, event), MT_OK);
    EXPECT_EQ(ops.query_event(nullptr, event), 1);
    ops.destroy_event(nullptr, event);
  }
  release(a);
  release(b);
  ops.destroy_stream(nullptr, 0, other);
}

// Other processes may use the device at the same time, so that work takes at least its time alone:
// the memory's rate is below 20 TB/s.
TEST_F(Device, TimedEventsMeasureTheDevice) {
  const size_t bytes = size_t{256} << 20;
  char* a = allocate(bytes);
  void* events[3];
  for (int i = 0; i < 3; ++i) {
    events[i] = ops.record_timed_event(nullptr, 0, stream);
    ASSERT_NE(events[i], nullptr);
    for (int k = 0; i < 2 && k < 10 + 40 * i; ++k) {
      ASSERT_EQ(cudaMemsetAsync(a, k, bytes, static_cast<cudaStream_t>(stream)), cudaSuccess);
    }
  }
  ASSERT_EQ(ops.wait_event(nullptr, 0, nullptr, events[2]), MT_OK);
  double first = 0, second = 0, both = 0;  // seconds
  ASSERT_EQ(ops.event_elapsed(nullptr, events[0], events[1], &first), MT_OK);
  ASSERT_EQ(ops.event_elapsed(nullptr, events[1], events[2], &second), MT_OK);
  ASSERT_EQ(ops.event_elapsed(nullptr, events[0], events[2], &both), MT_OK);
  EXPECT_GT(first, 10 * static_cast<double>(bytes) / 20e12);
  EXPECT_GT(second, 50 * static_cast<double>(bytes) / 20e12);
  EXPECT_NEAR(both, first + second, 1e-3 * both);
  // Without timing, an event has no time.
  void* other = ops.record_event(nullptr, 0, stream);
  EXPECT_NE(ops.event_elapsed(nullptr, events[0], other, &first), MT_OK);
  ops.destroy_event(nullptr, other);
  for (void* event : events) ops.destroy_event(nullptr, event);
  release(a);
}

TEST_F(Device, DescribesItself) {
  EXPECT_GE(ops.device_count(nullptr), 1);
  char name[256] = "";
  ASSERT_EQ(ops.device_name(nullptr, 0, name, sizeof(name)), MT_OK);
  EXPECT_NE(std::string(describe(nullptr)).find(name), std::string::npos);
  EXPECT_NE(std::string(describe(nullptr)).find("cuDNN"), std::string::npos);
  uint64_t free = 0, total = 0;
  ASSERT_EQ(ops.memory_info(nullptr, 0, &free, &total), MT_OK);
  EXPECT_GT(free, 0u);
  EXPECT_LE(free, total);
  const Properties& p = properties(0);
  EXPECT_GE(p.major, 8);
  EXPECT_GE(p.multiprocessors, 1);
}

TEST_F(Device, AllocationBeyondItsMemoryReturnsNull) {
  EXPECT_EQ(allocate(size_t{1} << 50), nullptr);
  char* data = allocate(1000);  // still usable
  EXPECT_NE(data, nullptr);
  release(data);
}

// The next wait for the stream reports an error that a kernel recorded.
TEST_F(Device, SynchronizeReportsAFaultOnce) {
  mt_ctx ctx{};
  ctx.device = {MT_DEVICE_CUDA, 0};
  ctx.stream = stream;
  Fault* device_side = fault_of(ctx);
  EXPECT_EQ(fault_of(ctx), device_side);
  const Fault fault{fault_site("gather"), 1, 7, 5};
  ASSERT_EQ(cudaMemcpyAsync(device_side, &fault, sizeof(fault), cudaMemcpyDefault,
                            static_cast<cudaStream_t>(stream)),
            cudaSuccess);
  EXPECT_EQ(ops.synchronize(nullptr, 0, stream), MT_ERROR_VALUE);
  EXPECT_EQ(ops.synchronize(nullptr, 0, stream), MT_OK) << "it is reported once";
}

TEST_F(Device, ThreadsUseItConcurrently) {
  std::vector<std::thread> threads;
  std::vector<int> good(8);
  for (size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      void* own = ops.create_stream(nullptr, 0, 0);
      for (int i = 0; i < 50; ++i) {
        const size_t bytes = static_cast<size_t>(i) * 40000 + 1;
        const std::vector<uint8_t> there = pattern(bytes, static_cast<unsigned>(t * 100) + i);
        std::vector<uint8_t> back(bytes);
        void* data = ops.allocate(nullptr, 0, bytes, own);
        bool fine =
            ops.copy(nullptr, 0, MT_COPY_TO_DEVICE, data, there.data(), bytes, own) == MT_OK;
        fine &= ops.copy(nullptr, 0, MT_COPY_TO_HOST, back.data(), data, bytes, own) == MT_OK;
        fine &= ops.synchronize(nullptr, 0, own) == MT_OK;
        ops.release(nullptr, 0, data, bytes, i % 3 == 0 ? stream : own);
        good[t] += fine && back == there ? 1 : 0;
      }
      ops.destroy_stream(nullptr, 0, own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int n : good) EXPECT_EQ(n, 50);
}

}  // namespace
}  // namespace mytorch::cuda
