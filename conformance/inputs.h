// Makes the arguments of a call from a sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/catalog.h"
#include "mytorch/call.h"

namespace mytorch::conformance {

// SplitMix64 (Steele, Lea, Flood 2014), which is independent of the generators under test.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  double uniform(double low, double high);
  int64_t integer(int64_t low, int64_t high);  // in [low, high)

 private:
  uint64_t state_;
};

// What is checked with a sample (stress.h has the checks other than the first, edges.h the last).
enum class Kind { kSample, kLarge, kSpecial, kThreads, kEdge };

// A call to test: a sample, and the type of the tensors whose type the sample leaves open.
struct Case {
  const OpRecord* op = nullptr;
  const Json* sample = nullptr;
  int number = 0;      // index among the operator's cases, for `--case`
  bool typed = false;  // whether the sample leaves types open
  ScalarType dtype = kFloat32;
  Kind kind = Kind::kSample;
  int64_t elements = 0;  // limit for an enlarged sample's largest tensor; 0: the sample as it is
  int longest = -1;      // which of the sample's sizes is enlarged; -1: all of them
  std::shared_ptr<const Json> own = nullptr;  // holds a changed sample
  // Of an edge case: the sample that it changes, and how (see edges.cpp).
  const Json* origin = nullptr;
  std::string edge = {};
  std::string error() const { return sample->value("error", ""); }
  bool may_fail() const { return sample->value("may_fail", false); }
  bool suggested() const { return sample->value("suggested", false); }  // see custom.h
  bool special() const;  // whether the sample has NaN or infinities
};

// Returns every case of an operator: one per sample, or one per type if the sample leaves types
// open.
std::vector<Case> cases_of(const OpRecord& op);

struct Arguments {
  std::vector<std::pair<std::string, Value>> values;  // in the sample's order

  std::vector<NamedValue> named() const;
  const Value* find(const std::string& name) const;
};

// Changes of the elements that a sample describes.
struct Twist {
  // Floats are multiples of this power of 2, so that sums of them, and of their products, are
  // exact; 0: any floats.
  double grid = 0;
  // The first, the last and another element of each tensor are so large that even a mean of many
  // shows whether it counts them.
  bool spikes = false;
  int tensor = -1;          // the floating tensor of which one element is `value`
  double value = 0;         // NaN, an infinity or -0
  bool everywhere = false;  // every element of that tensor is `value`
  bool zeros = false;       // all elements of the other floating tensors are 0
  uint64_t place = 0;       // chooses the element
  // Floats get errors of up to two rounding errors of the tensor's largest element, as
  // factorizations make. Each number but 0 gives other ones.
  uint64_t rounding = 0;
};

// Makes the arguments on a device; they depend only on the case, the seed and the twist. Memory
// outside of the tensors holds a pattern, which reveals reads out of bounds. `dtype` replaces the
// type of the case.
Arguments make_arguments(const Case& c, uint64_t seed, Device device, ScalarType dtype,
                         const Twist& twist = {});

// Makes the arguments with the elements of golden cases, by the rule of conformance/golden.py.
Arguments make_golden_arguments(const Case& c, Device device);

// Return deep copies with the same geometry. Tensors that share memory do not share it in the copy.
Tensor copy_of(const Tensor& tensor);
Arguments copy_of(const Arguments& arguments);

// Returns all bytes of a tensor's storage, copied to the CPU.
std::string storage_bytes(const Tensor& tensor);

// Describes the arguments: types and shapes of tensors, and the other values.
std::string describe(const Arguments& arguments);

}  // namespace mytorch::conformance
