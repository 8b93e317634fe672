// Device types registered at run time, using a device whose memory is host memory.
#include "core/runtime/device_registry.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/runtime/context.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

// The calls that the device received; `self` of its functions.
struct Log {
  std::mutex mutex;
  std::map<void*, size_t> blocks;  // live blocks and their sizes
  std::vector<void*> streams;      // one per created stream
  std::vector<void*> released_on;
  bool full = false;
};

Log& log_of(void* self) { return *static_cast<Log*>(self); }

mt_device_ops device_ops() {
  mt_device_ops ops{};
  ops.size = sizeof(ops);
  ops.device_count = [](void*) { return 2; };
  ops.allocate = [](void* self, int32_t, size_t bytes, void*) -> void* {
    std::lock_guard<std::mutex> lock(log_of(self).mutex);
    if (log_of(self).full || bytes == 0) return nullptr;
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    log_of(self).blocks[data] = bytes;
    return data;
  };
  ops.release = [](void* self, int32_t, void* data, size_t bytes, void* stream) {
    if (data == nullptr) return;
    std::lock_guard<std::mutex> lock(log_of(self).mutex);
    EXPECT_EQ(log_of(self).blocks.at(data), bytes);
    log_of(self).blocks.erase(data);
    log_of(self).released_on.push_back(stream);
    std::free(data);
  };
  ops.copy = [](void*, int32_t, int32_t, void* to, const void* from, size_t bytes, void*) {
    std::memcpy(to, from, bytes);
    return int{MT_OK};
  };
  ops.create_stream = [](void* self, int32_t, int32_t) -> void* {
    std::lock_guard<std::mutex> lock(log_of(self).mutex);
    log_of(self).streams.push_back(new char);  // never freed: streams are never destroyed
    return log_of(self).streams.back();
  };
  ops.synchronize = [](void*, int32_t, void*) { return int{MT_OK}; };
  ops.record_event = [](void*, int32_t, void*) -> void* { return new char; };
  ops.wait_event = [](void*, int32_t, void*, void*) { return int{MT_OK}; };
  ops.destroy_event = [](void*, void* event) { delete static_cast<char*>(event); };
  return ops;
}

struct Npu {
  static Npu& get() {
    static Npu* const npu = new Npu;
    return *npu;
  }
  mt_ctx* ctx(int index) const { return context(slot, {type, index}); }
  Log log;
  mt_device_ops ops = device_ops();
  int slot = register_device_type("core_test_npu", &ops, &log);
  int32_t type = device_type(slot).type;
};

TEST(DeviceTest, HasANameThatParses) {
  const Npu& npu = Npu::get();
  EXPECT_EQ(Device("cpu"), kCPU);
  EXPECT_EQ(Device("core_test_npu"), Device(npu.type, 0));
  EXPECT_EQ(Device("core_test_npu:1"), Device(npu.type, 1));
  EXPECT_EQ(Device(npu.type, 1).str(), "core_test_npu:1");
  EXPECT_EQ(kCPU.str(), "cpu");
  EXPECT_EQ(Device("cpu:3").str(), "cpu:3");
  EXPECT_EQ(Device(77, 2).str(), "device-77:2");
  expect_error(ErrorCode::kDevice, {"'tpu'", "cpu, ", "core_test_npu", "MYTORCH_BACKEND_PATH"},
               [] { Device("tpu"); });
  expect_error(ErrorCode::kDevice, {"''"}, [] { Device(""); });
}

struct BadName {
  const char* name;
  const char* device;
};

const BadName kBadNames[] = {
    {"NoNumber", "core_test_npu:"},
    {"Letter", "core_test_npu:x"},
    {"LetterAfterTheNumber", "core_test_npu:1x"},
    {"NegativeNumber", "core_test_npu:-1"},
    {"LargeNumber", "core_test_npu:99999999999999999999"},
};

class DeviceNameTest : public ::testing::TestWithParam<BadName> {};
INSTANTIATE_TEST_SUITE_P(Malformed, DeviceNameTest, ::testing::ValuesIn(kBadNames),
                         [](const auto& info) { return info.param.name; });

TEST_P(DeviceNameTest, IsRejected) {
  Npu::get();
  const char* device = GetParam().device;
  expect_error(ErrorCode::kDevice, {device, "no device number", "'core_test_npu:0'"},
               [&] { Device{device}; });
}

TEST(DeviceTest, TypesWithoutADlpackCodeGetOneAtRunTime) {
  EXPECT_GE(Npu::get().type, int32_t{MT_DEVICE_DYNAMIC});
  EXPECT_EQ(device_slot(Npu::get().type), Npu::get().slot);
  EXPECT_EQ(device_slot(MT_DEVICE_CPU), kCpuSlot);
  EXPECT_EQ(device_type(Npu::get().slot).count, 2);
  expect_error(ErrorCode::kDevice, {"device type 77", "core_test_npu"}, [] { device_slot(77); });
}

// As a thread does whose first operators ran while another thread was still loading backends.
TEST(DeviceTest, UnknownTypesAreDiscovered) {
  constexpr int32_t kType = 71;
  const auto before = std::exchange(discover_devices, [] {
    static const mt_device_ops ops = [] {
      mt_device_ops made = device_ops();
      made.type = kType;
      return made;
    }();
    if (device_type_name(kType) == "device-71") register_device_type("late", &ops, new Log);
  });
  EXPECT_EQ(device_type(checked_device_slot(Device(kType, 1))).name, "late");
  discover_devices = before;
}

TEST(DeviceTest, IndicesMustExist) {
  EXPECT_EQ(checked_device_slot(Device(Npu::get().type, 1)), Npu::get().slot);
  expect_error(ErrorCode::kDevice, {"no core_test_npu:2", "2 devices"},
               [] { checked_device_slot(Device(Npu::get().type, 2)); });
  expect_error(ErrorCode::kDevice, {"no cpu:1", "1 device"},
               [] { checked_device_slot(Device("cpu:1")); });
  expect_error(ErrorCode::kDevice, {"-1"}, [] { checked_device_slot(Device(1, -1)); });
}

TEST(RegisterTest, SecondBackendFindsTheDeviceByName) {
  const Npu& npu = Npu::get();
  EXPECT_EQ(register_device_type("core_test_npu", nullptr, nullptr), npu.slot);
  EXPECT_EQ(register_device_type("cpu", nullptr, nullptr), kCpuSlot);
  mt_device_ops ops = device_ops();
  expect_error(ErrorCode::kDevice, {"'core_test_npu' already has a backend", "NULL"},
               [&] { register_device_type("core_test_npu", &ops, nullptr); });
  expect_error(ErrorCode::kDevice, {"'cpu' already has a backend"},
               [&] { register_device_type("cpu", &ops, nullptr); });
  expect_error(ErrorCode::kDevice, {"'nowhere' is unknown"},
               [] { register_device_type("nowhere", nullptr, nullptr); });
}

// An incomplete or inconsistent device, and the reason for its rejection.
struct BadDevice {
  const char* name;
  const char* reason;
  void (*change)(mt_device_ops& ops);
};

const BadDevice kBadDevices[] = {
    {"WithoutAllocate", "lacks one of", [](mt_device_ops& ops) { ops.allocate = nullptr; }},
    {"WithoutCopy", "lacks one of", [](mt_device_ops& ops) { ops.copy = nullptr; }},
    {"WithCopyBeyondItsSize", "lacks one of",
     [](mt_device_ops& ops) { ops.size = offsetof(mt_device_ops, copy); }},
    {"WithStreamsButNoWaitEvent", "has streams, but lacks",
     [](mt_device_ops& ops) { ops.wait_event = nullptr; }},
    {"WithStreamsButNoDestroyEvent", "has streams, but lacks",
     [](mt_device_ops& ops) { ops.size = offsetof(mt_device_ops, destroy_event); }},
    {"WithTheCodeOfTheCpu", "belongs to 'cpu'",
     [](mt_device_ops& ops) { ops.type = MT_DEVICE_CPU; }},
    {"WithANegativeCount", "gave -1",
     [](mt_device_ops& ops) { ops.device_count = [](void*) { return -1; }; }},
};

class BadDeviceTest : public ::testing::TestWithParam<BadDevice> {};
INSTANTIATE_TEST_SUITE_P(Register, BadDeviceTest, ::testing::ValuesIn(kBadDevices),
                         [](const auto& info) { return info.param.name; });

TEST_P(BadDeviceTest, IsRejectedAndAddsNoType) {
  const int before = num_device_types();
  mt_device_ops ops = device_ops();
  GetParam().change(ops);
  expect_error(ErrorCode::kDevice, {"'odd'", GetParam().reason},
               [&] { register_device_type("odd", &ops, nullptr); });
  EXPECT_EQ(num_device_types(), before);
}

// Fields beyond `size` are ignored.
TEST(RegisterTest, AcceptsOlderAndNewerStructs) {
  struct Newer {
    mt_device_ops known;
    void* more[4];
  };
  static Newer newer{device_ops(), {&newer, &newer, &newer, &newer}};
  newer.known.size = sizeof(newer);
  static Log log;
  const int slot = register_device_type("core_test_newer", &newer.known, &log);
  EXPECT_EQ(device_type(slot).ops->size, sizeof(mt_device_ops));

  // This device has a single queue, synchronous copies, and no fields beyond `create_stream`.
  mt_device_ops older = device_ops();
  older.size = offsetof(mt_device_ops, create_stream);
  const int plain = register_device_type("core_test_older", &older, &log);
  EXPECT_EQ(device_type(plain).ops->create_stream, nullptr);
  EXPECT_EQ(device_type(plain).ops->record_event, nullptr);
  EXPECT_EQ(context(plain, {device_type(plain).type, 0})->stream, nullptr);
  const Tensor x = Tensor::adopt(new_tensor_strided({2}, {1}, kFloat32, Device("core_test_older")));
  EXPECT_EQ(x.numel(), 2);
}

TEST(DeviceMemoryTest, IsAllocatedAndReleasedByTheDevice) {
  Npu& npu = Npu::get();
  const size_t before = npu.log.blocks.size();
  {
    const int64_t sizes[] = {3, 5};
    const Tensor x = Tensor::adopt(new_tensor(sizes, 2, kFloat64, Device(npu.type, 1), npu.slot));
    EXPECT_EQ(x.device(), Device(npu.type, 1));
    EXPECT_EQ(x.impl()->abi.dl.device.index, 1);
    EXPECT_EQ(npu.log.blocks.at(const_cast<void*>(x.raw_data())), 15 * sizeof(double));
    const Tensor view = Tensor::adopt(new_view(x.impl(), {5}, {1}, 5));
    EXPECT_EQ(view.device(), x.device());
    const Tensor empty =
        Tensor::adopt(new_tensor_strided({0, 4}, {4, 1}, kFloat32, Device(npu.type, 0)));
    EXPECT_EQ(empty.numel(), 0);
    EXPECT_EQ(npu.log.blocks.size(), before + 1);
  }
  EXPECT_EQ(npu.log.blocks.size(), before);
  EXPECT_EQ(npu.log.released_on.back(), npu.ctx(1)->stream);
}

TEST(DeviceMemoryTest, ExhaustionIsAnError) {
  Npu& npu = Npu::get();
  const size_t before = npu.log.blocks.size();
  npu.log.full = true;
  const int64_t size = 1000;
  expect_error(ErrorCode::kOutOfMemory, {"core_test_npu:0", "4000 bytes"}, [&] {
    Tensor::adopt(new_tensor(&size, 1, kFloat32, Device(npu.type, 0), npu.slot));
  });
  EXPECT_EQ(npu.ctx(0)->scratch(npu.ctx(0), 100), nullptr);
  npu.log.full = false;
  EXPECT_EQ(npu.log.blocks.size(), before);
}

TEST(StreamTest, EachThreadHasOneStreamPerDevice) {
  Npu& npu = Npu::get();
  void* const mine[] = {npu.ctx(0)->stream, npu.ctx(1)->stream};
  EXPECT_NE(mine[0], mine[1]);
  EXPECT_EQ(npu.ctx(0)->stream, mine[0]);  // the stream is stable
  const size_t before = npu.log.streams.size();
  std::thread([&] {
    EXPECT_NE(npu.ctx(0)->stream, mine[0]);
    EXPECT_EQ(npu.ctx(0)->device.index, 0);
    EXPECT_EQ(npu.ctx(1)->device.index, 1);
  }).join();
  EXPECT_EQ(npu.log.streams.size(), before + 2);
}

TEST(StreamTest, ScratchIsDeviceMemory) {
  Npu& npu = Npu::get();
  const size_t before = npu.log.blocks.size();
  std::thread([&] {
    mt_ctx* ctx = npu.ctx(1);
    EXPECT_NE(ctx->scratch(ctx, 100), nullptr);
    EXPECT_NE(ctx->scratch(ctx, 5 << 20), nullptr);
    EXPECT_EQ(npu.log.blocks.size(), before + 2);
    release_scratch(ctx);
    EXPECT_EQ(npu.log.blocks.size(), before);
    EXPECT_NE(ctx->scratch(ctx, 100), nullptr);
    EXPECT_NE(ctx->scratch(ctx, 5 << 20), nullptr);
    release_scratch(ctx);
    EXPECT_EQ(npu.log.blocks.size(), before + 1);
  }).join();
  EXPECT_EQ(npu.log.blocks.size(), before);  // freed at the end of the thread
}

// Runs in a separate process, because types are registered for the life of the process.
int fill_the_registry() {
  Log& log = Npu::get().log;
  for (int i = num_device_types(); i < kMaxDeviceTypes; ++i) {
    mt_device_ops ops = device_ops();
    register_device_type(("filler" + std::to_string(i)).c_str(), &ops, &log);
  }
  mt_device_ops ops = device_ops();
  expect_error(ErrorCode::kDevice, {"no room", "'one_more'", "8 types", "filler7"},
               [&] { register_device_type("one_more", &ops, nullptr); });
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(RegisterDeathTest, HoldsEightDeviceTypes) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(fill_the_registry()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mytorch
