// The library behind `mytorch check`: every operator, on a backend, against the reference.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/inputs.h"

namespace mytorch::conformance {

struct Failure {
  std::string op;
  int number = -1;
  std::string check;  // "functional", "out=", "in-place", "composite", "gradcheck", ...
  std::string arguments;
  std::string what;
};

// How a call came to its result.
enum class Route {
  kNone,       // refused, or wrong before anything ran
  kView,       // no kernel was needed
  kNative,     // by a kernel of the op
  kComposite,  // as the ops that its meaning names, all of them by kernels of the device
  kFallback,   // wholly or in part on the CPU
};
const char* route_name(Route route);

// What became of one case.
struct Outcome {
  std::string op;
  int number = -1;
  bool refused = false;  // a type that the operator does not take, on the backend and the reference
  Route route = Route::kNone;
  double worst = 0;  // the largest error, of what is allowed: 1 is the bound
  std::vector<Failure> failures = {};
};

// What became of one operator's cases.
struct Score {
  int cases = 0;
  int failed = 0;
  int refused = 0;
  int routes[5] = {};  // by Route
  double worst = 0;
  std::vector<Failure> failures;

  void add(const Outcome& outcome);
  Route route() const;  // the slowest that was taken
};

struct Options {
  std::string backend;  // "": whichever the dispatcher chooses on `device`
  std::string plugin;   // the file of the backend, where it was given as one
  std::string device = "cpu";
  std::vector<std::string> only;  // full or base names of operators; empty: all
  std::string dtype;              // "": every type
  std::string samples;            // a file with those of a plug-in's own operators
  uint64_t seed = 0;
  int number = -1;     // of a case; -1: all
  bool quick = false;  // one case for each operator and kind of type
  bool gradients = true;
  bool verbose = false;  // a line for each operator
  // Told of each case before it runs, and of what became of it; the number is -1 for what concerns
  // an operator as a whole.
  std::function<void(const std::string& op, int number)> begins;
  std::function<void(const Outcome&)> ended;
  std::string after_op;  // where another process stopped: begin behind this operator's case
  int after_number = -1;

  bool selects(const OpRecord& op) const;
};

struct Report {
  std::map<std::string, Score> scores;
  std::vector<Failure> failures;
  int cases = 0;
  int failed = 0;
  bool ok() const { return failed == 0 && cases > 0; }
};

// The command that runs one case again.
std::string reproducer(const Options& options, const std::string& op, int number);

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

// Replays PyTorch's results and gradients (conformance/goldens, made by scripts/make-goldens).
Report check_goldens(const std::vector<OpRecord>& catalog, const Options& options,
                     std::ostream& out);

// Runs the checks, writes failures with their reproducers as they come, and a summary at the end.
Report check(const std::vector<OpRecord>& catalog, const Options& options, std::ostream& out);

}  // namespace mytorch::conformance
