// Kernels built for an older schema of their operator.
#include <cstddef>
#include <limits>

#include "dispatcher/choice/state.h"
#include "dispatcher/table/defaults.h"
#include "mytorch/call.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::bare;

// The first schema of this operator had only `self` and `out`; the second also had `alpha`; the
// current one has all arguments.
struct Args {
  mt_args_header header;
  const mt_tensor* self;
  const mt_tensor* out;
  mt_scalar alpha;
  int64_t count;
  mt_optional_int limit;
  double scale;
  mt_optional_float bound;
  const char* mode;
  mt_int_list dims;
  mt_int_list pads;
  mt_dtype dtype;
  mt_device device;
  const mt_tensor* weight;
  const mt_tensor* second;
};

constexpr uint64_t kHash = 3, kWithAlpha = 2, kFirst = 1;

constexpr ArgInfo keyword(const char* name, ArgType type, const char* text, uint32_t offset) {
  return {.name = name, .type = type, .kw_only = true, .default_text = text, .offset = offset};
}
constexpr ArgInfo optional(ArgInfo arg) {
  arg.optional = true;
  return arg;
}

#define AT(name) static_cast<uint32_t>(offsetof(Args, name))
constexpr ArgInfo kArgs[] = {
    {.name = "self", .offset = AT(self)},
    keyword("alpha", ArgType::kScalar, "1", AT(alpha)),
    keyword("count", ArgType::kInt, "-1", AT(count)),
    optional(keyword("limit", ArgType::kInt, "None", AT(limit))),
    keyword("scale", ArgType::kFloat, "0.5", AT(scale)),
    optional(keyword("bound", ArgType::kFloat, "2.0", AT(bound))),
    keyword("mode", ArgType::kStr, "mean", AT(mode)),
    optional(keyword("dims", ArgType::kIntList, "None", AT(dims))),
    keyword("pads", ArgType::kIntList, "[0, 1]", AT(pads)),
    optional(keyword("dtype", ArgType::kScalarType, "None", AT(dtype))),
    optional(keyword("device", ArgType::kDevice, "None", AT(device))),
    optional(keyword("weight", ArgType::kTensor, "None", AT(weight))),
};
constexpr OutputInfo kOutputs[] = {{"out", AT(out), -1}, {"second", AT(second), -1}};
constexpr OlderSchema kOlder[] = {{kWithAlpha, AT(count)}, {kFirst, AT(alpha)}};
#undef AT

OpInfo op_info() {
  OpInfo info{};
  info.name = "grown";
  info.base = "grown";
  info.hash = kHash;
  info.meaning = Meaning::kPrimitive;
  info.promote = Promote::kNone;
  info.has_kernel = true;
  info.args = kArgs;
  info.num_args = static_cast<int32_t>(std::size(kArgs));
  info.outputs = kOutputs;
  info.num_outputs = 2;
  info.args_size = sizeof(Args);
  info.older = kOlder;
  info.num_older = 2;
  return info;
}

constexpr int64_t kPads[] = {0, 1};
constexpr int64_t kOtherPads[] = {0, 2};
constexpr int64_t kShortPads[] = {0};

class OlderTest : public ::testing::Test {
 protected:
  OlderTest() {
    args_.header.size = sizeof(Args);
    args_.self = args_.out = &x_.impl()->abi;
    args_.alpha = Scalar(1).abi();
    args_.count = -1;
    args_.scale = 0.5;
    args_.bound = {2.0, 1};
    args_.mode = "mean";
    args_.pads = {kPads, 2};
  }

  // Returns the argument that a kernel for the schema with this hash does not know, or "".
  std::string unknown(uint64_t hash) const {
    const char* name = unknown_argument(info_, known_fields(info_, hash), &args_);
    return name != nullptr ? name : "";
  }

  const OpInfo info_ = op_info();
  const Tensor x_ = tensor({1.0}).to(bare().device());
  Args args_{};
};

TEST_F(OlderTest, TakesCallsThatLeaveNewArgumentsAtTheirDefaults) {
  EXPECT_EQ(unknown(kHash), "");
  EXPECT_EQ(unknown(kWithAlpha), "");
  EXPECT_EQ(unknown(kFirst), "");
  EXPECT_EQ(known_fields(info_, kHash), UINT32_MAX);
  EXPECT_EQ(known_fields(info_, 99), 0u);
}

TEST_F(OlderTest, KnownArgumentsMayHaveAnyValue) {
  args_.alpha = Scalar(7).abi();
  EXPECT_EQ(unknown(kWithAlpha), "");
  EXPECT_EQ(unknown(kFirst), "alpha");
}

// A value of an argument that differs from its default.
struct Change {
  const char* name;
  const char* argument;
  void (*apply)(Args& args);
};

const Change kChanges[] = {
    {"ScalarOfAnotherCategory", "alpha", [](Args& a) { a.alpha = Scalar(1.0).abi(); }},
    {"AbsentScalar", "alpha", [](Args& a) { a.alpha = mt_scalar{}; }},
    {"Int", "count", [](Args& a) { a.count = 0; }},
    {"OptionalInt", "limit",
     [](Args& a) {
       a.limit = {0, 1};
     }},
    {"Float", "scale", [](Args& a) { a.scale = 0.25; }},
    {"FloatNaN", "scale", [](Args& a) { a.scale = std::numeric_limits<double>::quiet_NaN(); }},
    {"OptionalFloat", "bound",
     [](Args& a) {
       a.bound = {2.5, 1};
     }},
    {"AbsentFloat", "bound", [](Args& a) { a.bound = {}; }},
    {"Str", "mode", [](Args& a) { a.mode = "sum"; }},
    {"AbsentStr", "mode", [](Args& a) { a.mode = nullptr; }},
    {"EmptyIntListForAbsent", "dims",
     [](Args& a) {
       a.dims = {kPads, 0};
     }},
    {"OtherIntList", "pads",
     [](Args& a) {
       a.pads = {kOtherPads, 2};
     }},
    {"ShorterIntList", "pads",
     [](Args& a) {
       a.pads = {kShortPads, 1};
     }},
    {"ScalarType", "dtype", [](Args& a) { a.dtype = to_abi(kFloat32); }},
    {"Device", "device",
     [](Args& a) {
       a.device = {MT_DEVICE_CPU, 0};
     }},
    {"Tensor", "weight", [](Args& a) { a.weight = a.self; }},
    {"WantedOutput", "second", [](Args& a) { a.second = a.self; }},
};

class ChangedArgumentTest : public OlderTest, public ::testing::WithParamInterface<Change> {};
INSTANTIATE_TEST_SUITE_P(Older, ChangedArgumentTest, ::testing::ValuesIn(kChanges),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChangedArgumentTest, IsUnknownToOlderKernelsOnly) {
  GetParam().apply(args_);
  EXPECT_EQ(unknown(kFirst), GetParam().argument);
  EXPECT_EQ(unknown(kHash), "");
}

TEST_F(OlderTest, ChoiceSkipsKernelsThatLackAnArgument) {
  const int slot = bare().slot();
  static const OpInfo info = op_info();
  static OpEntry entry(&info);
  static Backend old_backend, new_backend;
  old_backend.name = "old";
  new_backend.name = "new";
  old_backend.device_slot = new_backend.device_slot = slot;
  static int ran = 0;
  mt_kernel_entry kernel{};
  kernel.size = sizeof(kernel);
  kernel.op = "grown";
  kernel.flags = MT_TAKES_STRIDED | MT_TAKES_ALIAS;
  kernel.name = "first";
  kernel.hash = kFirst;
  kernel.priority = 9;
  kernel.run = [](void*, mt_ctx*, const void*) {
    ran = 1;
    return int{MT_OK};
  };
  register_kernel(entry, old_backend, kernel);
  mt_ctx* ctx = context(slot, {bare().device().type, 0});
  auto run = [&] {
    ran = 0;
    return run_kernel(entry, slot, ctx, &args_) ? ran : -1;
  };
  EXPECT_EQ(run(), 1);
  args_.count = 5;
  EXPECT_EQ(run(), -1);
  testing::expect_error(ErrorCode::kUnsupported,
                        {"old/first: was built for an older schema, without "
                         "'count'"},
                        [&] { fail_no_kernel(entry, slot, &args_); });
  kernel.name = "current";
  kernel.hash = kHash;
  kernel.priority = 0;
  kernel.run = [](void*, mt_ctx*, const void*) {
    ran = 2;
    return int{MT_OK};
  };
  register_kernel(entry, new_backend, kernel);
  EXPECT_EQ(run(), 2);
  args_.count = -1;
  EXPECT_EQ(run(), 1);
  kernel.hash = 99;
  register_kernel(entry, new_backend, kernel);
  EXPECT_EQ(kernels(entry, slot).size(), 2u);
}

TEST(DefaultTest, EveryDefaultOfEveryRecordIsReadable) {
  int defaults = 0;
  for (const OpEntry* entry : all_ops()) {
    for (int i = 0; i < entry->info->num_args; ++i) {
      const ArgInfo& arg = entry->info->args[i];
      if (arg.default_text == nullptr) continue;
      const Value value = default_value(arg);
      EXPECT_EQ(value.is_none(), std::string(arg.default_text) == "None") << entry->info->schema;
      ++defaults;
    }
  }
  EXPECT_GT(defaults, 100);
}

}  // namespace
}  // namespace mytorch
