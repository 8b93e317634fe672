// Compiled functions with dimensions that may have any size: recordings at a few sizes become
// graphs of symbols (symbols/family.h), which give the recordings of further sizes.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/capture/guards.h"
#include "graph/run/joint.h"
#include "graph/symbols/family.h"
#include "mytorch/compile.h"

namespace mytorch::graph {

class DynamicShapes {
 public:
  // Throws Error(kValue) if a dimension is named twice or has a wrong name.
  DynamicShapes(std::vector<DynamicDim> dims, int64_t most_families);

  bool any() const { return !dims_.empty(); }

  // A recording that no run of the function made.
  struct Instance {
    Guards guards;
    Recorded recorded;
    std::shared_ptr<Joint> joint;
  };
  // Returns the recording for a call, if it follows from those at other sizes. Otherwise `reason`
  // receives why not. Throws Error(kValue) if an argument has no such dimension.
  std::optional<Instance> instance(const Guards& call, const std::vector<Tensor>& arguments,
                                   std::string* reason);
  // Notes a recording; `guards` are complete. Returns why it is no other size of an earlier one, or
  // "".
  std::string add(const Guards& guards, const Recorded& recorded,
                  const std::shared_ptr<Joint>& joint);

  // Returns the newest graph of symbols to which a recording belongs.
  struct Symbolic {
    const Recorded* recorded;
    std::string text;
  };
  std::optional<Symbolic> symbolic(const Guards& guards) const;

 private:
  struct KnownFamily {
    Guards guards;
    std::shared_ptr<Joint> joint;
    Family family;
  };
  // Returns the sizes of the symbols, or nothing and why.
  std::optional<SymbolValues> sizes_of(const Guards& call, std::string* reason) const;
  size_t dim_of(const DynamicDim& each, const Guards& call) const;
  bool belongs(const KnownFamily& known, const Guards& call) const;

  std::vector<DynamicDim> dims_;
  std::vector<size_t> symbol_of_;  // of each dimension
  std::vector<std::string> names_;
  std::vector<bool> declared_;
  size_t most_;
  std::list<KnownFamily> known_;  // the newest first
};

}  // namespace mytorch::graph
