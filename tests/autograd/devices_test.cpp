// Graphs over several devices: each device's nodes run on a separate thread, the CPU's on the
// caller's. The nodes compute their gradients on the host, so the devices need no kernels.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/runtime/device_registry.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/mul.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

// Two devices whose memory is host memory.
Device fake_device(int index) {
  static const int slot = [] {
    static mt_device_ops ops = {};
    ops.size = sizeof(ops);
    ops.host_accessible = 1;
    ops.device_count = [](void*) { return 2; };
    ops.allocate = [](void*, int32_t, size_t bytes, void*) {
      return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    };
    ops.release = [](void*, int32_t, void* data, size_t, void*) { std::free(data); };
    ops.copy = [](void*, int32_t, int32_t, void* to, const void* from, size_t bytes, void*) {
      std::memcpy(to, from, bytes);
      return int{MT_OK};
    };
    return register_device_type("autograd_test_device", &ops, nullptr);
  }();
  return Device(device_type(slot).type, index);
}

// Multiplies the single value of a tensor, and places the result on another device.
Tensor moved(const Tensor& x, Device device, double factor) {
  const int64_t size = 1;
  const Tensor y =
      Tensor::adopt(new_tensor(&size, 1, kFloat64, device, checked_device_slot(device)));
  *static_cast<double*>(y.impl()->abi.dl.data) =
      *static_cast<const double*>(x.impl()->abi.dl.data) * factor;
  return y;
}

struct Log {
  std::mutex mutex;
  std::set<std::thread::id> threads[3];  // per device: the CPU and the two others
};

struct MoveNode final : autograd::Node {
  Device from, to;
  double factor = 1;
  Log* log = nullptr;
  std::function<void()> extra;
  const char* name() const override { return "MoveBackward"; }
  void apply(Tensor* grads, Tensor* out) override {
    {
      std::lock_guard<std::mutex> lock(log->mutex);
      log->threads[to.is_cpu() ? 0 : 1 + to.index].insert(std::this_thread::get_id());
    }
    if (extra) extra();
    out[0] = moved(grads[0], from, factor);
  }
};

Tensor move(const Tensor& x, Device to, double factor, Log* log, std::function<void()> extra = {}) {
  const Tensor y = moved(x, to, factor);
  auto node = autograd::make_node<MoveNode>(1, 1);
  node->from = x.device();
  node->to = to;
  node->factor = factor;
  node->log = log;
  node->extra = std::move(extra);
  node->edge(0, x);
  autograd::set_history(y, node);
  return y;
}

TEST(Devices, EachHasItsThread) {
  Log log;
  const Tensor x = leaf({2});
  Tensor h = move(x, kCPU, 2, &log);
  h = move(h, fake_device(0), 3, &log);
  h = move(h, fake_device(0), 5, &log);
  h = move(h, fake_device(1), 7, &log);
  h = move(h, kCPU, 11, &log);
  h.backward();
  EXPECT_EQ(values(x.grad()), (Values{2 * 3 * 5 * 7 * 11}));
  const std::set<std::thread::id> here = {std::this_thread::get_id()};
  EXPECT_EQ(log.threads[0], here);
  EXPECT_EQ(log.threads[1].size(), 1u);
  EXPECT_EQ(log.threads[2].size(), 1u);
  EXPECT_NE(log.threads[1], here);
  EXPECT_NE(log.threads[2], here);
  EXPECT_NE(log.threads[1], log.threads[2]);
}

TEST(Devices, BranchesMeetAgain) {
  Log log;
  const Tensor x = leaf({1});
  Tensor total = mul(x, 0.0);
  for (int i = 0; i < 20; ++i) {
    total = add(total, move(move(x, fake_device(i % 2), 2, &log), kCPU, i, &log));
  }
  total.backward({}, true);
  EXPECT_EQ(values(x.grad()), (Values{2 * 190}));
  EXPECT_EQ(values(autograd::grad({total}, {x})[0]), (Values{2 * 190}));
}

TEST(Devices, ExceptionsReachTheCaller) {
  Log log;
  const Tensor x = leaf({1});
  const Tensor h =
      move(x, fake_device(0), 2, &log, [] { throw std::runtime_error("on the device"); });
  const Tensor y = add(move(h, kCPU, 3, &log), x);
  EXPECT_ERROR(y.backward({}, true), "on the device");
  EXPECT_ERROR(y.backward({}, true), "MoveBackward");
  EXPECT_FALSE(x.grad().defined() && values(x.grad())[0] == 7);
}

// A backward started on a device's thread cannot wait for that thread.
TEST(Devices, BackwardInsideBackward) {
  Log log;
  const Tensor x = leaf({1});
  const Tensor inner_x = leaf({1});
  const Tensor inner = move(move(inner_x, fake_device(0), 5, &log), kCPU, 7, &log);
  const Tensor h = move(x, fake_device(0), 2, &log, [&] { inner.backward(); });
  move(h, kCPU, 3, &log).backward();
  EXPECT_EQ(values(x.grad()), (Values{6}));
  EXPECT_EQ(values(inner_x.grad()), (Values{35}));
}

// A graph on a single device needs no other thread.
TEST(Devices, OneDeviceRunsOnTheCaller) {
  Log log;
  const Tensor x = moved(plain({2}), fake_device(0), 1);
  x.requires_grad_();
  const Tensor y = move(move(x, fake_device(0), 2, &log), fake_device(0), 3, &log);
  y.backward(moved(plain({1}), fake_device(0), 1));
  EXPECT_EQ(*static_cast<double*>(x.grad().impl()->abi.dl.data), 6);
  EXPECT_EQ(log.threads[1], (std::set<std::thread::id>{std::this_thread::get_id()}));
}

}  // namespace
}  // namespace mytorch
