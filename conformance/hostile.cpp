#include "conformance/hostile.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "conformance/elements.h"
#include "mytorch/autograd.h"
#include "mytorch/error.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::conformance {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

class Hostile {
 public:
  Hostile(const OpRecord& op, Random& random, Device device)
      : op_(op), random_(random), device_(device) {}

  HostileCall make();

 private:
  bool chance(int64_t one_in) { return random_.integer(0, one_in) == 0; }
  template <class List>
  auto one_of(const List& list) {
    return *(std::begin(list) + random_.integer(0, static_cast<int64_t>(std::size(list))));
  }

  int64_t integer(int64_t near);
  double floating();
  Scalar scalar();
  std::string text();
  ScalarType dtype();
  std::vector<int64_t> integers(std::vector<int64_t> list);
  std::vector<int64_t> shape();
  Tensor fresh(ScalarType type, const std::vector<int64_t>& shape);
  Tensor view_of(const Tensor& tensor);
  Tensor tensor(const Tensor& instead_of);
  std::vector<Tensor> tensors(std::vector<Tensor> list);
  Value any_kind();
  Value instead_of(const OpArg& arg, const Value& value);
  Value by_type(const OpArg& arg);
  const Tensor* some_tensor() const;
  void enlarge();
  void misname();
  void differentiate(HostileCall& made);

  const OpRecord& op_;
  Random& random_;
  Device device_;
  Arguments arguments_;
};

int64_t Hostile::integer(int64_t near) {
  static constexpr int64_t kValues[] = {0,
                                        1,
                                        -1,
                                        2,
                                        -2,
                                        3,
                                        4,
                                        5,
                                        7,
                                        64,
                                        -64,
                                        kMax,
                                        kMin,
                                        kMax - 1,
                                        kMin + 1,
                                        kMax / 2,
                                        kMin / 2,
                                        kMax / 3,
                                        kMax / 8,
                                        int64_t{1} << 31,
                                        (int64_t{1} << 31) - 1,
                                        -(int64_t{1} << 31),
                                        int64_t{1} << 32,
                                        (int64_t{1} << 32) + 1,
                                        int64_t{1} << 40,
                                        int64_t{1} << 62,
                                        3037000500};
  if (near < kMax && near > kMin && chance(4)) return near + (chance(2) ? 1 : -1);
  if (near != kMin && chance(8)) return -near;
  return one_of(kValues);
}

double Hostile::floating() {
  static const double kValues[] = {0.0,        -0.0,  1.0,          -1.0,     0.5,      2.0,
                                   1e-320,     1e300, -1e300,       0x1p63,   -0x1p63,  0x1p64,
                                   0x1p53 + 2, 1e-3,  std::nan(""), HUGE_VAL, -HUGE_VAL};
  return one_of(kValues);
}

Scalar Hostile::scalar() {
  switch (random_.integer(0, 3)) {
    case 0:
      return floating();
    case 1:
      return chance(2);
    default:
      return integer(0);
  }
}

std::string Hostile::text() {
  static const char* const kTexts[] = {
      "",     "none",       "mean",       "sum",       "floor", "trunc",   "same",     "valid",
      "ij",   "xy",         "ii->",       "ij,jk->ik", "...",   "a->bb",   "\xff\xfe", "a,b,",
      "tanh", "0123456789", "...i,...->", "aA->Aa",    "->",    "reflect", "%s%n"};
  if (chance(10)) return std::string(static_cast<size_t>(random_.integer(0, 1000)), 'i');
  return one_of(kTexts);
}

ScalarType Hostile::dtype() {
  if (chance(20)) return static_cast<ScalarType>(random_.integer(kNumScalarTypes, 256));
  return static_cast<ScalarType>(random_.integer(0, kNumScalarTypes));
}

std::vector<int64_t> Hostile::integers(std::vector<int64_t> list) {
  switch (random_.integer(0, 6)) {
    case 0:
      list.clear();
      break;
    case 1:
      list.push_back(integer(1));
      break;
    case 2:
      if (!list.empty()) list.pop_back();
      break;
    case 3:
      if (chance(4)) {
        list.assign(static_cast<size_t>(one_of(std::initializer_list<int64_t>{8, 64, 65, 1000})),
                    integer(1));
        break;
      }
      [[fallthrough]];
    default:
      for (int64_t& each : list) {
        if (chance(2)) each = integer(each);
      }
      if (list.empty()) list.push_back(integer(1));
  }
  return list;
}

std::vector<int64_t> Hostile::shape() {
  static const std::vector<int64_t> kShapes[] = {{},
                                                 {0},
                                                 {1},
                                                 {2},
                                                 {3},
                                                 {5},
                                                 {0, 2},
                                                 {2, 0},
                                                 {1, 1},
                                                 {2, 3},
                                                 {3, 2},
                                                 {4, 4},
                                                 {1, 0, 1},
                                                 {2, 3, 4},
                                                 {1, 1, 1, 1},
                                                 {2, 0, 3, 1},
                                                 {257},
                                                 {1, 65},
                                                 {2, 3, 2, 3},
                                                 {1, 2, 3, 2, 1},
                                                 {1, 1, 1, 1, 1, 1, 1, 2},
                                                 {100, 3}};
  if (chance(60)) {
    std::vector<int64_t> many(static_cast<size_t>(random_.integer(9, 67)), 1);
    many[static_cast<size_t>(random_.integer(0, 9))] = random_.integer(0, 4);
    return many;
  }
  return one_of(kShapes);
}

Tensor Hostile::fresh(ScalarType type, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  Tensor memory = call("empty", {std::vector<int64_t>{count}}, {{"dtype", type}})[0].tensor();
  auto* bytes = static_cast<char*>(memory.raw_mutable_data());
  const bool wild = chance(3);
  for (int64_t i = 0; i < count; ++i) {
    Element e = Element::of_int(random_.integer(0, 4));
    if (wild && is_floating_point(type)) e = Element::of_float(floating());
    if (wild && is_integral(type)) e = Element::of_int(integer(0));
    if (wild || type != kBool || e.i < 2) store(e, type, bytes, i);
    if (type == kBool) bytes[i] = static_cast<char>(e.i & 1);
  }
  if (!device_.is_cpu()) memory = call("to.device", {memory, device_})[0].tensor();
  return call("view", {memory, shape})[0].tensor();
}

// Returns a view of a tensor, or the tensor itself if the view that was tried is refused.
Tensor Hostile::view_of(const Tensor& tensor) {
  const int64_t dims = tensor.dim();
  try {
    switch (random_.integer(0, 8)) {
      case 0:
        return call("transpose", {tensor, random_.integer(0, dims + 1), int64_t{-1}})[0].tensor();
      case 1:
        return call("slice",
                    {tensor, random_.integer(0, dims + 1), int64_t{0}, kMax, int64_t{2}})[0]
            .tensor();
      case 2:
        return call("unsqueeze", {tensor, random_.integer(0, dims + 1)})[0].tensor();
      case 3: {
        std::vector<int64_t> sizes = tensor.sizes().vec();
        sizes.insert(sizes.begin(), random_.integer(0, 4));
        return call("expand", {tensor, sizes})[0].tensor();
      }
      case 4:
        return call("select", {tensor, random_.integer(0, dims + 1), int64_t{0}})[0].tensor();
      case 5:
        return call("flatten", {tensor})[0].tensor();
      case 6:  // windows that overlap
        return call("as_strided",
                    {tensor, std::vector<int64_t>{2, 2}, std::vector<int64_t>{1, 1}})[0]
            .tensor();
      default:
        return call("slice", {tensor, random_.integer(0, dims + 1), int64_t{1}})[0].tensor();
    }
  } catch (const Error&) {
    return tensor;
  }
}

const Tensor* Hostile::some_tensor() const {
  for (const auto& [name, value] : arguments_.values) {
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    if (tensor != nullptr && tensor->defined()) return tensor;
  }
  return nullptr;
}

Tensor Hostile::tensor(const Tensor& instead_of) {
  const ScalarType type = instead_of.defined() && !chance(4)
                              ? instead_of.dtype()
                              : static_cast<ScalarType>(random_.integer(0, kNumScalarTypes));
  switch (random_.integer(0, 8)) {
    case 0:
      return {};
    case 1:
    case 2:
      return instead_of.defined() ? view_of(instead_of) : fresh(type, shape());
    case 3:  // memory that another argument has, too
      if (const Tensor* other = some_tensor()) return chance(2) ? *other : view_of(*other);
      [[fallthrough]];
    case 4:  // the same shape with other elements
      return fresh(type, instead_of.defined() && instead_of.numel() < 10000
                             ? instead_of.sizes().vec()
                             : shape());
    case 5:
      return view_of(fresh(type, shape()));
    default:
      return fresh(type, shape());
  }
}

std::vector<Tensor> Hostile::tensors(std::vector<Tensor> list) {
  switch (random_.integer(0, 5)) {
    case 0:
      list.clear();
      break;
    case 1:
      if (!list.empty()) list.pop_back();
      break;
    case 2:
      list.push_back(tensor({}));
      break;
    case 3:
      if (chance(4)) list.assign(100, tensor({}));
      break;
    default:
      if (!list.empty()) {
        Tensor& one =
            list[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(list.size())))];
        one = tensor(one);
      }
  }
  return list;
}

Value Hostile::any_kind() {
  switch (random_.integer(0, 10)) {
    case 0:
      return {};
    case 1:
      return tensor({});
    case 2:
      return tensors({});
    case 3:
      return scalar();
    case 4:
      return integers({});
    case 5:
      return std::vector<double>{floating(), floating()};
    case 6:
      return text();
    case 7:
      return dtype();
    case 8:
      return Device(static_cast<int32_t>(integer(1)), static_cast<int32_t>(integer(0)));
    default:
      return Generator(random_.next());
  }
}

Value Hostile::by_type(const OpArg& arg) {
  const std::string type = arg.type.substr(0, arg.type.find_first_of("?["));
  const bool list = arg.type.find('[') != std::string::npos;
  if (arg.is_tensor_list()) return tensors({tensor({}), tensor({})});
  if (arg.is_tensor()) return tensor({});
  if (type == "int") return list ? Value(integers({1, 1})) : Value(integer(0));
  if (type == "float") return list ? Value(std::vector<double>(3, floating())) : Value(floating());
  if (type == "bool") return chance(2);
  if (type == "str") return text();
  if (type == "ScalarType") return dtype();
  return scalar();
}

Value Hostile::instead_of(const OpArg& arg, const Value& value) {
  if (chance(12)) return any_kind();
  const auto& v = value.variant();
  if (const auto* t = std::get_if<Tensor>(&v)) return tensor(*t);
  if (const auto* list = std::get_if<std::vector<Tensor>>(&v)) return tensors(*list);
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&v)) return integers(*ints);
  if (const auto* s = std::get_if<Scalar>(&v)) {
    if (arg.is_tensor() && chance(2)) return tensor({});
    return s->is_float() ? Value(floating()) : chance(6) ? Value(scalar()) : integer(s->to_int());
  }
  return by_type(arg);
}

// Makes all lists of integers large in the same way, so that they may fit each other: a window of
// 2^31 with a padding of 2^30.
void Hostile::enlarge() {
  const int64_t size = integer(1);
  for (auto& [name, value] : arguments_.values) {
    const auto* list = std::get_if<std::vector<int64_t>>(&value.variant());
    if (list == nullptr || chance(4)) continue;
    value = std::vector<int64_t>(list->size(), chance(2) ? size : size / 2);
  }
}

// Leaves arguments out, gives unknown ones, and gives one twice.
void Hostile::misname() {
  auto& values = arguments_.values;
  if (!values.empty()) {
    const auto at = values.begin() + random_.integer(0, static_cast<int64_t>(values.size()));
    if (chance(2)) {
      values.erase(at);
    } else {
      values.push_back(*at);
    }
  }
  if (chance(3)) values.emplace_back(chance(2) ? "" : "other_than_known", any_kind());
}

// Makes some floating arguments require gradients.
void Hostile::differentiate(HostileCall& made) {
  static constexpr Backward kAll[] = {Backward::kOnce, Backward::kOnce, Backward::kTwice,
                                      Backward::kAfterZero};
  made.backward = one_of(kAll);
  for (auto& [name, value] : arguments_.values) {
    const auto* t = std::get_if<Tensor>(&value.variant());
    if (t == nullptr || !t->defined() || !is_floating_point(t->dtype()) || chance(3)) continue;
    Tensor leaf = t->detach();
    leaf.requires_grad_();
    made.leaves.push_back(leaf);
    switch (random_.integer(0, 4)) {
      case 0:
        value = view_of(leaf);
        break;
      case 1:  // which may be written
        value = call("clone", {leaf})[0].tensor();
        break;
      default:
        value = leaf;
    }
  }
  made.with_gradient = chance(6);
  if (made.with_gradient) made.gradient = tensor({});
}

HostileCall Hostile::make() {
  const std::vector<Case> cases = cases_of(op_);
  if (!cases.empty() && !chance(10)) {
    const Case& c =
        cases[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(cases.size())))];
    arguments_ = make_arguments(c, random_.next(), device_, c.dtype);
  } else {
    for (const OpArg& arg : op_.args) {
      if (arg.required || chance(2)) arguments_.values.emplace_back(arg.name, by_type(arg));
    }
  }
  const auto known = [&](const std::string& name) {
    return std::find_if(arguments_.values.begin(), arguments_.values.end(),
                        [&](const auto& each) { return each.first == name; });
  };
  for (int64_t left = random_.integer(0, 4); left > 0 && !op_.args.empty(); --left) {
    const OpArg& arg =
        op_.args[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(op_.args.size())))];
    if (const auto at = known(arg.name); at != arguments_.values.end()) {
      at->second = instead_of(arg, at->second);
    } else {
      arguments_.values.emplace_back(arg.name, by_type(arg));
    }
  }
  if (chance(12)) enlarge();
  HostileCall made;
  made.op = &op_;
  made.name = op_.name;
  if (op_.differentiable() && chance(4)) differentiate(made);
  const size_t dot = op_.name.find('.');
  if (op_.inplace && chance(4)) {
    made.name =
        op_.name.substr(0, dot) + "_" + (dot == std::string::npos ? "" : op_.name.substr(dot));
  } else if (op_.out && chance(4)) {
    size_t outs = std::max<size_t>(op_.result_names.size(), 1);
    if (chance(20)) outs += chance(2) ? 1 : -1;
    for (size_t i = 0; i < outs; ++i) {
      const Tensor* like = some_tensor();
      made.outs.push_back(tensor(like != nullptr ? *like : Tensor()));
    }
  }
  if (chance(30)) misname();
  made.arguments = arguments_;
  return made;
}

}  // namespace

HostileCall make_hostile_call(const OpRecord& op, Random& random, Device device) {
  return Hostile(op, random, device).make();
}

}  // namespace mytorch::conformance
