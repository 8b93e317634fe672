// Making the arguments of one call from a sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/catalog.h"
#include "mytorch/call.h"

namespace mytorch::conformance {

// SplitMix64 (Steele, Lea, Flood 2014): apart from the framework's generators, which are tested
// here.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  double uniform(double low, double high);
  int64_t integer(int64_t low, int64_t high);  // in [low, high)

 private:
  uint64_t state_;
};

// One call to test: a sample, with the type of those tensors whose type it leaves open.
struct Case {
  const OpRecord* op = nullptr;
  const Json* sample = nullptr;
  int number = 0;      // among the op's cases: `--case`
  bool typed = false;  // the sample leaves types open
  ScalarType dtype = kFloat32;
  std::string error() const { return sample->value("error", ""); }
  bool may_fail() const { return sample->value("may_fail", false); }
  bool suggested() const { return sample->value("suggested", false); }  // see custom.h
  bool special() const;                                                 // has NaN or infinities
};

// Every case of an op, one for each type where its sample leaves the type open.
std::vector<Case> cases_of(const OpRecord& op);

struct Arguments {
  std::vector<std::pair<std::string, Value>> values;  // in the sample's order

  std::vector<NamedValue> named() const;
  const Value* find(const std::string& name) const;
};

// The arguments, on a device. Equal for equal (case, seed), whatever the device. Elements of the
// memory that belong to no tensor hold a pattern, so that a stray read shows. `dtype` replaces the
// case's own.
Arguments make_arguments(const Case& c, uint64_t seed, Device device, ScalarType dtype);

// The same with the elements that golden cases have, by the rule of codegen/golden.py.
Arguments make_golden_arguments(const Case& c, Device device);

// Deep copies with the same geometry; what shares memory does not share it afterwards.
Tensor copy_of(const Tensor& tensor);
Arguments copy_of(const Arguments& arguments);

// A tensor's memory from its storage's beginning to its end, as bytes on the CPU.
std::string storage_bytes(const Tensor& tensor);

// The arguments in words: types, shapes, and what is no tensor.
std::string describe(const Arguments& arguments);

}  // namespace mytorch::conformance
