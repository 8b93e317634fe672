// The library behind `mytorch check`: every operator, on a backend, against the oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/conformance/catalog.h"
#include "tests/conformance/inputs.h"

namespace mytorch::conformance {

struct Options {
  std::string backend;  // "": whichever the dispatcher chooses on `device`
  std::string device = "cpu";
  std::vector<std::string> only;  // full or base names of operators; empty: all
  std::string dtype;              // "": every type
  uint64_t seed = 0;
  int number = -1;     // of a case; -1: all
  bool quick = false;  // one case for each operator and kind of type
  bool gradients = true;
  bool verbose = false;  // a line for each operator

  bool selects(const OpRecord& op) const;
};

struct Failure {
  std::string op;
  int number;
  std::string check;  // "functional", "out=", "in-place", "composite", "gradcheck", ...
  std::string arguments;
  std::string what;
};

// What became of one operator's cases.
struct Score {
  int cases = 0;
  int failed = 0;
  int refused = 0;  // types that the operator does not take, on the backend and the oracle alike
};

struct Report {
  std::map<std::string, Score> scores;
  std::vector<Failure> failures;
  int cases = 0;
  int failed = 0;
  bool ok() const { return failed == 0 && cases > 0; }
};

// Collects what is wrong with one case.
using Fail = std::function<void(const std::string& check, const std::string& what)>;

// Calls an operator with all arguments by name.
std::vector<Value> call_named(const std::string& name, const Arguments& arguments,
                              const std::vector<Tensor>& outs = {});

// The functional form's result is given; the others have to agree with it.
void check_out_form(const Case& c, const Arguments& arguments, const std::vector<Value>& expected,
                    const Fail& fail);
void check_inplace_form(const Case& c, const Arguments& arguments,
                        const std::vector<Value>& expected, const Fail& fail);
// The shape and stride rules that hold for every pointwise operator.
void check_geometry(const Case& c, const Arguments& arguments, const std::vector<Value>& results,
                    const Fail& fail);
// Gradients, and gradients of gradients, against differences, in float64. False where the case is
// none for that.
bool check_gradient(const Case& c, uint64_t seed, Device device, const Fail& fail);

// Replays PyTorch's results and gradients (tests/goldens, made by scripts/make-goldens).
Report check_goldens(const std::vector<OpRecord>& catalog, const Options& options,
                     std::ostream& out);

// Runs the checks, writes failures with their reproducers as they come, and a summary at the end.
Report check(const std::vector<OpRecord>& catalog, const Options& options, std::ostream& out);

}  // namespace mytorch::conformance
