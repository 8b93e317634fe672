// The choice of kernels, and the errors when none takes a call.
#include "dispatcher/choice/choice.h"

#include <cstdlib>

#include "mytorch/abi_ops/fmax.h"
#include "mytorch/abi_ops/hypot.h"
#include "mytorch/abi_ops/maximum.h"
#include "mytorch/abi_ops/minimum.h"
#include "mytorch/backends.h"
#include "mytorch/ops/atan2.h"
#include "mytorch/ops/bmm.h"
#include "mytorch/ops/copysign.h"
#include "mytorch/ops/fmin.h"
#include "mytorch/ops/fmod.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/ops/logaddexp.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/remainder.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::add_backend_with;
using testing::bare;
using testing::expect_error;
using testing::fill_out;
using testing::kTakesAll;
using testing::TestKernel;
using testing::Values;
using testing::values;

// A kernel of a binary pointwise operator that fills its output with `value`. All such operators
// have the same argument struct.
TestKernel gives(const std::string& op, const std::string& name, float value, int32_t priority = 0,
                 std::function<const char*(const void*)> supports = nullptr) {
  return {op,
          name,
          priority,
          kTakesAll,
          [value](mt_ctx*, const void* args) {
            return fill_out(static_cast<const mt_args_hypot*>(args)->out, value);
          },
          std::move(supports)};
}

// A kernel with a custom function.
TestKernel runs(const std::string& op, const std::string& name,
                std::function<int(mt_ctx*, const void*)> run, int32_t priority = 0) {
  return {op, name, priority, kTakesAll, std::move(run)};
}

Tensor x() { return tensor({3.0}).to(bare().device()); }

std::vector<std::string> names_of(const char* op) {
  std::vector<std::string> names;
  for (const KernelEntry& kernel : kernels(*find_op(op), bare().slot())) {
    if (!kernel.compiled) names.emplace_back(kernel.abi.name);
  }
  return names;
}

TEST(ChoiceTest, AsksByPriorityThenInOrderOfRegistration) {
  bare();
  add_backend_with("order-1", "bare", {gives("hypot", "low", 1, -1), gives("hypot", "first", 2)});
  EXPECT_EQ(values(hypot(x(), x())), Values{2});
  add_backend_with("order-2", "bare", {gives("hypot", "high", 3, 5), gives("hypot", "second", 4)});
  EXPECT_EQ(names_of("hypot"), (std::vector<std::string>{"high", "first", "second", "low"}));
  EXPECT_EQ(values(hypot(x(), x())), Values{3});
}

TEST(ChoiceTest, AsksTheNextKernelIfOneDeclines) {
  bare();
  int asked = 0;
  add_backend_with("declines", "bare",
                   {gives("atan2", "conditional", 1, 9,
                          [&asked](const void*) {
                            ++asked;
                            return "it is the wrong time of day";
                          }),
                    runs(
                        "atan2", "late", [](mt_ctx*, const void*) { return int{MT_DECLINED}; }, 8),
                    gives("atan2", "takes", 5, 7)});
  EXPECT_EQ(values(atan2(x(), x())), Values{5});
  EXPECT_EQ(asked, 1);
}

// A kernel sees that there is no output; the caller sees why.
TEST(ChoiceTest, OutputsThatDoNotFitIntoMemoryAreAnErrorThatSaysSo) {
  bare();
  bool asked = false;
  add_backend_with("endless", "bare", {runs("nonzero", "endless", [&](mt_ctx* ctx, const void*) {
                     const int64_t shape[] = {int64_t{1} << 58, 1};
                     asked = ctx->make_output(ctx, 0, shape, 2) == nullptr;
                     return int{MT_ERROR_INTERNAL};
                   })});
  expect_error(ErrorCode::kOutOfMemory, {"cannot allocate"}, [] { nonzero(x()); });
  EXPECT_TRUE(asked);
}

TEST(ChoiceTest, ErrorNamesEveryKernelAndItsReason) {
  bare();
  add_backend_with(
      "reasons", "bare",
      {gives("remainder.Tensor", "conditional", 1, 9,
             [](const void*) { return "only on Sundays"; }),
       runs("remainder.Tensor", "late", [](mt_ctx*, const void*) { return int{MT_DECLINED}; }),
       {"remainder.Tensor", "simple", -1, 0, [](mt_ctx*, const void*) { return int{MT_OK}; }}});
  add_backend_with("reasons-reference", "bare", {gives("remainder.Tensor", "definition", 7)},
                   MT_BACKEND_REFERENCE);
  const Tensor two = tensor({1.0, 2, 3, 4}).to(bare().device());
  const Tensor strided = Tensor::adopt(new_view(two.impl(), {2}, {2}, 0));
  expect_error(
      ErrorCode::kUnsupported,
      {"[remainder] no kernel of remainder.Tensor on bare takes",
       "(self: float32(2,), other: float32(2,))", "\n  reasons/conditional: only on Sundays",
       "\n  reasons/late: declined at run time",
       "\n  reasons/simple: takes only contiguous operands, and there is no copy_ kernel",
       "\n  reasons-reference/definition: is the reference", "MYTORCH_FALLBACK=1"},
      [&] { remainder(strided, strided); });
}

TEST(ChoiceTest, ErrorNamesTheLoadedBackends) {
  const Tensor m = tensor({1.0}).to(bare().device()).view({1, 1, 1});
  expect_error(ErrorCode::kUnsupported,
               {"[bmm]", "No backend has a kernel for it", "bare", "self: float32(1, 1, 1)"},
               [&] { bmm(m, m); });
}

TEST(ChoiceTest, KernelErrorsBecomeErrors) {
  bare();
  int status = 0;
  const char* message = "";
  add_backend_with("fails", "bare", {runs("fmod.Tensor", "fails", [&](mt_ctx* ctx, const void*) {
                     if (message != nullptr) ctx->set_error(ctx, status, message);
                     return status;
                   })});
  for (int code = MT_ERROR_SHAPE; code <= MT_ERROR_INTERNAL; ++code) {
    status = code;
    message = "what was wrong";
    expect_error(static_cast<ErrorCode>(code), {"[fmod] what was wrong"}, [] { fmod(x(), x()); });
  }
  message = "[inner] already begins so";
  try {
    fmod(x(), x());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[inner] already begins so");
  }
  message = nullptr;  // the message of the previous call must not persist
  expect_error(ErrorCode::kInternal, {"[fmod] the kernel failed with status 9"},
               [] { fmod(x(), x()); });
  status = 12345;
  expect_error(ErrorCode::kInternal, {"status 12345"}, [] { fmod(x(), x()); });
  status = -1;
  expect_error(ErrorCode::kInternal, {"status -1"}, [] { fmod(x(), x()); });
}

TEST(PinTest, ScopesNest) {
  bare();
  add_backend_with("pin-a", "bare", {gives("copysign.Tensor", "a", 1, 9)});
  add_backend_with("pin-b", "bare", {gives("copysign.Tensor", "b", 2)});
  add_backend_with("pin-c", "bare", {gives("copysign.Tensor", "c", 3)}, MT_BACKEND_REFERENCE);
  auto result = [] { return values(copysign(x(), x()))[0]; };
  EXPECT_EQ(result(), 1);
  {
    const Prefer b("bare", "pin-b");
    EXPECT_EQ(result(), 2);
    {
      const Prefer ref("bare", "pin-c");
      EXPECT_EQ(result(), 3);
      const Prefer a("bare", "pin-a");
      EXPECT_EQ(result(), 1);
    }
    EXPECT_EQ(result(), 2);
  }
  EXPECT_EQ(result(), 1);
  // A pin for one device type does not affect the others.
  const Prefer reference("cpu", "reference");
  EXPECT_EQ(result(), 1);
}

TEST(PinTest, OtherBackendsTakeCallsThatThePinnedOneDeclines) {
  bare();
  add_backend_with("pin-some", "bare",
                   {gives("logaddexp", "some", 1, 0, [](const void*) { return "no"; })});
  add_backend_with("pin-rest", "bare", {gives("logaddexp", "rest", 2)});
  const Prefer some("bare", "pin-some");
  EXPECT_EQ(values(logaddexp(x(), x())), Values{2});
  // If only the pinned backend is allowed, the operator decomposes, and its nodes have no kernels.
  const RestrictKernels restricted(Kernels::kPreferred);
  expect_error(ErrorCode::kUnsupported, {}, [] { logaddexp(x(), x()); });
}

TEST(PinTest, UnknownNamesAreErrors) {
  bare();
  expect_error(ErrorCode::kValue, {"[prefer] no backend 'nobody' serves bare", "bare"},
               [] { Prefer("bare", "nobody"); });
  expect_error(ErrorCode::kDevice, {"'nowhere'"}, [] { Prefer("nowhere", "reference"); });
  expect_error(ErrorCode::kValue, {"'reference' serves bare"}, [] { Prefer("bare", "reference"); });
}

TEST(PinTest, EnvironmentPinsFromTheStart) {
  // Uses a separate device, because this pin never ends.
  static const testing::FakeDevice& device =
      testing::FakeDevice::create({"env", 1, nullptr, nullptr});
  setenv("MYTORCH_PREFER", "someone-else,env-b", 1);
  add_backend_with("env-a", "env", {gives("fmin", "a", 1, 9)});
  add_backend_with("env-b", "env", {gives("fmin", "b", 2)});
  unsetenv("MYTORCH_PREFER");
  const Tensor one = tensor({1.0}).to(device.device());
  EXPECT_EQ(values(fmin(one, one)), Values{2});
  {
    const Prefer a("env", "env-a");
    EXPECT_EQ(values(fmin(one, one)), Values{1});
  }
  EXPECT_EQ(values(fmin(one, one)), Values{2});
}

// A backend that must be rejected, and the error.
struct Violation {
  const char* name;
  ErrorCode code;
  const char* message;
  mt_backend_init_fn init;
};

const Violation kViolations[] = {
    {"AnotherMajorVersion", ErrorCode::kUnsupported, "contract version 2",
     [](const mt_host*, mt_backend* b) {
       b->abi_major = 2;
       return int{MT_OK};
     }},
    {"NoName", ErrorCode::kValue, "name and device_type",
     [](const mt_host*, mt_backend*) { return int{MT_OK}; }},
    {"TakenName", ErrorCode::kValue, "is named 'reference', and",
     [](const mt_host*, mt_backend* b) {
       b->name = "reference";
       b->device_type = "cpu";
       return int{MT_OK};
     }},
    {"NoKernelTable", ErrorCode::kValue, "3 kernels but no table",
     [](const mt_host*, mt_backend* b) {
       b->name = "untabled";
       b->device_type = "cpu";
       b->num_kernels = 3;
       return int{MT_OK};
     }},
    {"KernelsWithoutSize", ErrorCode::kValue, "mt_kernel_entry::size",
     [](const mt_host*, mt_backend* b) {
       static const mt_kernel_entry sizeless[2] = {};
       b->name = "sizeless";
       b->device_type = "cpu";
       b->kernels = sizeless;
       b->num_kernels = 2;
       return int{MT_OK};
     }},
    {"UnknownDeviceType", ErrorCode::kDevice, "'unheard-of' is unknown",
     [](const mt_host*, mt_backend* b) {
       b->name = "placeless";
       b->device_type = "unheard-of";
       return int{MT_OK};
     }},
    {"MissingHardware", ErrorCode::kUnsupported, "cannot serve this machine: no such chip",
     [](const mt_host* host, mt_backend*) {
       host->set_error(MT_DECLINED, "no such chip");
       return int{MT_DECLINED};
     }},
    {"FailedInit", ErrorCode::kInternal, "failed with status 8: the driver is too old",
     [](const mt_host* host, mt_backend*) {
       host->set_error(MT_ERROR_IO, "the driver is too old");
       return int{MT_ERROR_IO};
     }},
    {"ThrowingInit", ErrorCode::kInternal, "threw",
     [](const mt_host*, mt_backend*) -> int { throw 1; }},
};

class ViolationTest : public ::testing::TestWithParam<Violation> {};
INSTANTIATE_TEST_SUITE_P(Contract, ViolationTest, ::testing::ValuesIn(kViolations),
                         [](const auto& info) { return info.param.name; });

TEST_P(ViolationTest, IsRejected) {
  load_default_backends();
  const size_t before = backends().size();
  expect_error(GetParam().code, {"[backend]", GetParam().message},
               [] { register_backend(GetParam().init); });
  EXPECT_EQ(backends().size(), before);
}

TEST(RegisterTest, IgnoresUnknownOperatorsAndSchemas) {
  bare();
  TestKernel other = gives("fmax", "other schema", 1);
  other.hash = 12345;
  add_backend_with("newer-ops", "bare", {other, gives("fmax", "known", 2)});
  EXPECT_EQ(names_of("fmax"), std::vector<std::string>{"known"});
  static mt_kernel_entry unknown[2];
  unknown[0] = unknown[1] = {};
  unknown[0].size = unknown[1].size = sizeof(mt_kernel_entry);
  unknown[0].op = "op_of_another_time";
  unknown[1].op = "fmax";
  unknown[1].hash = MT_HASH_fmax;  // has no run function
  register_backend([](const mt_host*, mt_backend* b) {
    b->name = "unknown-ops";
    b->device_type = "bare";
    b->kernels = unknown;
    b->num_kernels = 2;
    return int{MT_OK};
  });
  EXPECT_EQ(names_of("fmax"), std::vector<std::string>{"known"});
}

// The kernel tables of a backend built against a later minor version have longer entries.
TEST(RegisterTest, AcceptsLongerStructs) {
  bare();
  struct Longer {
    mt_kernel_entry known;
    void* more[3];
  };
  static Longer table[2];
  const char* const kNames[] = {"first", "second"};
  for (int i = 0; i < 2; ++i) {
    table[i] = {{}, {&table, &table, &table}};
    mt_kernel_entry& kernel = table[i].known;
    kernel.size = sizeof(Longer);
    kernel.op = i == 0 ? "maximum" : "minimum";
    kernel.hash = i == 0 ? MT_HASH_maximum : MT_HASH_minimum;
    kernel.name = kNames[i];
    kernel.flags = kTakesAll;
    kernel.run = [](void*, mt_ctx*, const void* args) {
      return fill_out(static_cast<const mt_args_maximum*>(args)->out, 42);
    };
  }
  register_backend([](const mt_host*, mt_backend* b) {
    b->name = "longer";
    b->device_type = "bare";
    b->kernels = &table[0].known;
    b->num_kernels = 2;
    b->abi_minor = 99;
    return int{MT_OK};
  });
  EXPECT_EQ(names_of("minimum"), std::vector<std::string>{"second"});
  EXPECT_EQ(values(minimum(x(), x())), Values{42});
}

}  // namespace
}  // namespace mytorch
