// DLPack and devices whose work is queued on streams.
#include "core/runtime/context.h"
#include "mytorch/dlpack.h"
#include "mytorch/ops.h"
#include "tests/dispatcher/util.h"

// As dlpack.h 1.0 has them.
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  mt_dltensor dl_tensor;
};

namespace mytorch {
namespace dlpack_devices {

using testing::expect_error;
using testing::FakeDevice;
using testing::full;
using testing::Values;
using testing::values;

constexpr int32_t kExtension = 12;  // DLPack's code for devices that it does not know

// A device that DLPack has a code for.
FakeDevice& extension() {
  static FakeDevice& device = FakeDevice::create({.name = "extension", .type = kExtension});
  return device;
}

mt_ctx* context_of(Device device) {
  return context(extension().slot(), {device.type, device.index});
}

TEST(DlpackDevices, DevicesWithoutACodeAreRefused) {
  const Tensor x = tensor({1.0, 2}).to(full().device(1));
  expect_error(ErrorCode::kDevice, {"[to_dlpack]", "full:1", "kCPU"}, [&] { to_dlpack(x); });
  expect_error(ErrorCode::kValue, {"full:1", "cpu", "without a copy"},
               [&] { to_dlpack(x, {.device = kCPU, .copy = false}); });
  DLManagedTensorVersioned* const managed = to_dlpack(x, {.device = kCPU});
  EXPECT_EQ(managed->flags, 2u);  // a copy
  EXPECT_EQ(values(from_dlpack(managed)), (Values{1, 2}));
}

TEST(DlpackDevices, TensorsStayWhereTheyAre) {
  const Tensor x = tensor({1.0, 2, 3}).to(extension().device(1));
  DLManagedTensorVersioned* const managed = to_dlpack(x);
  EXPECT_EQ(managed->dl_tensor.device.type, kExtension);
  EXPECT_EQ(managed->dl_tensor.device.index, 1);
  const Tensor back = from_dlpack(managed);
  EXPECT_EQ(back.device(), x.device());
  EXPECT_EQ(back.raw_data(), x.raw_data());
  EXPECT_EQ(values(back * 2), (Values{2, 4, 6}));
  DLManagedTensorVersioned* const other = to_dlpack(x);
  other->dl_tensor.device.index = 7;
  expect_error(ErrorCode::kDevice, {"extension:7", "there are 2"}, [&] { from_dlpack(other); });
}

TEST(DlpackDevices, TheConsumersStreamWaits) {
  const Device device = extension().device();
  const Tensor x = tensor({1.0, 2, 3}).to(device);
  const DeviceType& type = device_type(extension().slot());
  void* const stream = type.ops->create_stream(type.self, 0, 0);
  const auto exports = [&](std::optional<void*> on) {
    const testing::DeviceCalls before = extension().calls();
    from_dlpack(to_dlpack(x, {.stream = on}));
    testing::DeviceCalls after = extension().calls();
    after.events_waited -= before.events_waited;
    after.synchronizations -= before.synchronizations;
    EXPECT_EQ(after.events_recorded, after.events_destroyed);
    return after;
  };
  // The import waits for its own stream when it goes.
  EXPECT_EQ(exports(std::nullopt).synchronizations, 1);
  EXPECT_EQ(exports(std::nullopt).events_waited, 0);
  EXPECT_EQ(exports(stream).events_waited, 1);
  EXPECT_EQ(exports(nullptr).synchronizations, 2);
  EXPECT_EQ(exports(context_of(device)->stream).events_waited, 0);
  extension().let_fail("wait_event");
  expect_error(ErrorCode::kDevice, {"[to_dlpack]", "extension:0"},
               [&] { to_dlpack(x, {.stream = stream}); });
  extension().let_fail("");
}

TEST(DlpackDevices, MemoryGoesBackAfterItsLastUse) {
  const int64_t before = extension().calls().blocks;
  Tensor x = tensor({1.0, 2, 3}).to(extension().device());
  Tensor y = from_dlpack(to_dlpack(x));
  x = Tensor();
  EXPECT_EQ(values(y + 1), (Values{2, 3, 4}));
  EXPECT_GT(extension().calls().blocks, before);
  const int synchronizations = extension().calls().synchronizations;
  y = Tensor();
  EXPECT_EQ(extension().calls().synchronizations, synchronizations + 1);
  EXPECT_EQ(extension().calls().blocks, before);
}

}  // namespace dlpack_devices
}  // namespace mytorch
